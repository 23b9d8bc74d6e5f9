"""Errors of compilers, Triton and Python, with the lines of the candidate that they point at.

Contract: pure and total over any text; linear in it. Reads g++ and clang, nvcc and ptxas, the
linker, Triton's CompilationError, and Python errors as the judge words them. Lines are the
candidate's own: where a compiler counts lines of a string inside the module, the line it quotes
is looked up there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelgym.answers.python_source import python_lines
from kernelgym.types import Verdict

_LINES, _CHARS = 2_000, 600

# Lines are bounded, and no pattern nests repetitions.
_GCC = re.compile(r"^([^\s:()]+:\d+(?::\d+)?): ((?:fatal )?error: .*)$")
_NVCC = re.compile(r"^([^\s:()]+\(\d+\)): ((?:catastrophic )?error(?: #[\w-]+)?: .*)$")
_OTHER = re.compile(r"undefined reference to|^ptxas (?:fatal|error)|multiple definition of")
_GCC_QUOTE = re.compile(r"^ *\d+ \| (.*)$")
_CARET = re.compile(r"^\s*\^[~^]*\s*$")
_TRITON = re.compile(
    r"^(?:\w+\.)*(CompilationError|CompileTimeAssertionFailure|UnsupportedLanguageConstruct)"
    r": at \d+:\d+:"
)
_PLACES = re.compile(r" \(((?:line \d+(?:, in [\w<>]+)?(?:; )?)+)\)$")
_LINE = re.compile(r"line (\d+)(?:, in ([\w<>]+))?")
_NOISE = re.compile(
    r"^(?:CUDA kernel errors might be asynchronously reported|For debugging consider passing|"
    r"Compile with `TORCH_USE_CUDA_DSA`|Device-side assertion tracking was not enabled|"
    r"Search for `cuda\w+' in |You can (?:suppress|set) |Traceback \(most recent call last\)|"
    r"Exception raised from |frame #\d+: |The above exception was )"
)
_REPR = re.compile(r"^\w+\((['\"])(.*)\1\)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Complaint:
    """One error that a compiler, Triton or Python reported."""

    text: str
    """Text of the error, as the tool reported it."""
    lines: tuple[tuple[int, str], ...] = ()
    """Lines of the candidate's module that the error points at: number (0 if unknown) and text."""

    def __str__(self) -> str:
        quoted = [
            f"    line {number}: {text}" if number else f"    {text}" for number, text in self.lines
        ]
        return "\n".join([self.text, *quoted])


def complaints_of(verdict: Verdict, source: str) -> tuple[Complaint, ...]:
    """Return the errors that a verdict's log or message tells of, the first one first.

    Args:
        verdict: A verdict on a kernel that did not compile, or failed.
        source: The kernel's module.
    """
    own = [line.rstrip("\r\n")[:_CHARS] for line in python_lines(source)]
    if _TRITON.match(verdict.message):
        return (_of_triton(verdict.message, own),)
    found = _of_compilers(verdict.log, own) if not verdict.compiled else ()
    return found or ((_of_python(verdict.message, own),) if verdict.message.strip() else ())


def without_noise(text: str) -> str:
    """Return a message without lines that say nothing about the kernel."""
    lines = text[: _LINES * 10].splitlines()
    return "\n".join(line for line in lines if not _NOISE.match(line.strip())).strip()


def _of_compilers(log: str, own: list[str]) -> tuple[Complaint, ...]:
    found: dict[str, Complaint] = {}
    lines = [line[:_CHARS].rstrip() for line in log.splitlines()[:_LINES]]
    for number, line in enumerate(lines):
        after = lines[number + 1 : number + 3]
        quoted = ""
        if _GCC.match(line):
            if after and (quote := _GCC_QUOTE.match(after[0])):
                quoted = quote[1].strip()
        elif _NVCC.match(line):
            if len(after) == 2 and _CARET.match(after[1]):
                quoted = after[0].strip()
        elif not _OTHER.search(line):
            continue
        found.setdefault(line, Complaint(line, ((_find(quoted, own), quoted),) if quoted else ()))
    return tuple(found.values())


def _of_triton(message: str, own: list[str]) -> Complaint:
    """Return the part of Triton's message that matters: the line pointed at, the complaint."""
    lines = [line[:_CHARS].rstrip() for line in message.splitlines()[:_LINES]]
    carets = [number for number, line in enumerate(lines) if _CARET.match(line)]
    if not carets or carets[-1] < 2:
        return Complaint(without_noise(message))
    at = carets[-1]
    quoted = lines[at - 1].strip()
    said = "\n".join(lines[at + 1 :]).strip()
    said, _, _ = _split_places(said)
    if match := _REPR.match(said):
        said = match[2].replace("\\'", "'").replace("\\n", "\n")
    kind = lines[0].partition(":")[0].rpartition(".")[2]
    return Complaint(
        f"Triton {kind}: {said}" if said else f"Triton {kind}", ((_find(quoted, own), quoted),)
    )


def _of_python(message: str, own: list[str]) -> Complaint:
    text, places, shown = _split_places(without_noise(message))
    lines = [
        (number, f"{own[number - 1].strip()}{f'  (in {name})' if name else ''}")
        for number, name in places
        if 0 < number <= len(own)
    ]
    return Complaint(text if lines or not shown else f"{text} ({shown})", tuple(lines))


def _split_places(text: str) -> tuple[str, list[tuple[int, str]], str]:
    """Split ``text (line 3, in forward; line 9, in f)`` into the text and its places."""
    head, last = text[:-_CHARS], text[-_CHARS:]
    match = _PLACES.search(last)
    if match is None:
        return text, [], ""
    places = [(int(number[:9]), name) for number, name in _LINE.findall(match[1])]
    named = {number: name for number, name in places}
    return head + last[: match.start()], list(named.items()), match[1]


def _find(quoted: str, own: list[str]) -> int:
    """Return the number of the module's only line with a given text; 0 if there is none."""
    places = [number for number, line in enumerate(own, 1) if line.strip() == quoted]
    return places[0] if len(places) == 1 else 0
