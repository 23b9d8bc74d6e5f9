"""Ask Triton's front end whether a GPU could compile interpreted launches.

Contract: the candidate reports its distinct launches: which function, which types, which constants.
A second process, which loads no kernel's module and runs none of its code
(`untrusted/triton/front_end.py`), compiles them as far as no GPU is needed. So the candidate cannot
answer in the front end's place:

- the text of a kernel is taken from the module that the judge was given, by line, not from the
  report;
- a candidate that counted launches and reports none is refused;
- a refusal counts if a fresh process confirms it, since a process serves several kernels.

Not covered: a hostile candidate that launches one kernel and reports another. As with all evidence
(`kernelgym.judge.evidence.evidence`), its outputs are compared all the same.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kernelgym.answers.python_source import python_lines
from kernelgym.compile_result import CompileResult
from kernelgym.judge.processes.candidate_handle import (
    Candidate,
    CandidateEnded,
    CandidateTimedOut,
)
from kernelgym.judge.retries import Failure
from kernelgym.judge.session.channel import Rejected
from kernelgym.judge.session.launcher import CandidateProcesses
from kernelgym.judge.session.session import CandidateSession
from kernelgym.languages import REFERENCE_LANGUAGE
from kernelgym.types import Finding, Kernel, Severity, Status
from kernelgym.verdict import FRONT_END

_MOST_FUNCTIONS, _MOST_LAUNCHES, _MOST_TEXT = 256, 256, 200_000
_COMPILE_S, _WHOLE_S = 20.0, 120.0
_DIAGNOSIS = re.compile(r"^(\S+?):(\d+):(?:\d+:)? error: (.*)", re.MULTILINE)
_SERVES = 64
"""Number of kernels that one process is asked about: its memory grows by what Triton compiles."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    kind: str
    text: str
    where: str
    name: str
    said: str = ""

    def line(self) -> str:
        """Return the refusal for a reader."""
        place = f" ({self.where})" if self.where else ""
        said = f": {self.said}" if self.said and not self.where else ""
        return f"{self.name}: {self.kind}: {self.text}{place}{said}"


class FrontEnd:
    """Compiles launches in a process that runs no kernel code, kept for further kernels.

    Args:
        processes: Opens that process.
    """

    def __init__(self, processes: CandidateProcesses) -> None:
        self._processes = processes
        self._candidate: Candidate | None = None
        self._served = 0

    def check(self, session: CandidateSession, kernel: Kernel, target: str) -> None:
        """Compile a kernel's interpreted launches for a GPU, without one.

        Args:
            session: Process of the kernel, after the judged calls.
            kernel: The kernel.
            target: GPU to compile for, such as ``cuda:90``.

        Raises:
            Rejected: If a launch is refused; or if launches were counted and none is reported.
        """
        record = with_texts(session.launches(), kernel.source)
        if record is None or not record["launches"]:
            if session.tally.idle < session.tally.calls:
                raise Rejected(
                    Status.RUNTIME_ERROR,
                    "launches were counted that did not go through Triton's launcher, so that "
                    f"they cannot be compiled for {target}: launch a @triton.jit function as "
                    "kernel[grid](...)",
                )
            return
        refused = self._refusals(record, target)
        if not refused:
            return
        refusal = refused[0]
        place = f" ({refusal.where})" if refusal.where else ""
        told = Finding(
            FRONT_END,
            f"the interpreter ran {refusal.name}, and Triton's front end refuses to compile it for "
            f"{target}",
            Severity.INFO,
        )
        message = f"{refusal.kind}: {refusal.text}{place}"
        # No run of the kernel decides on it, so none is repeated for it.
        raise Rejected(Status.RUNTIME_ERROR, message, findings=(told,), failure=Failure.NONE)

    def compile(self, session: CandidateSession, kernel: Kernel, target: str) -> CompileResult:
        """Compile a kernel's interpreted launches for a GPU by every stage of Triton's compiler.

        Args:
            session: The kernel's process, after a call.
            kernel: The kernel.
            target: GPU to compile for, such as ``hip:gfx942`` or ``cuda:90``.
        """
        record = with_texts(session.launches(), kernel.source)
        if record is None or not record["launches"]:
            return CompileResult(0, ())
        refused = self._refusals(record, target, whole=True)
        complaints = (each.line() for each in refused)
        return CompileResult(len(record["launches"]), tuple(dict.fromkeys(complaints)))

    def _refusals(self, record: dict[str, Any], target: str, whole: bool = False) -> list[_Refusal]:
        """Return Triton's refusals to compile, if a fresh process confirms that there are any."""
        while True:
            fresh = self._candidate is None or self._served >= _SERVES
            if fresh:
                self.end()
                zygote = self._processes.zygote(REFERENCE_LANGUAGE)
                self._candidate = zygote.take()
                zygote.replenish()  # forks the one that may have to confirm a refusal
            found = self._ask(record, target, whole)
            self._served += 1
            if not found:
                return []
            self.end()
            if fresh:
                return found

    def _ask(self, record: dict[str, Any], target: str, whole: bool) -> list[_Refusal]:
        assert self._candidate is not None
        asked = {"record": record, "target": target, "whole": whole}
        self._candidate.post({"op": "front_end", **asked})
        allowed_s = _WHOLE_S if whole else _COMPILE_S
        try:
            answer = self._candidate.answer(time.monotonic() + allowed_s)
        except CandidateTimedOut:
            return [_Refusal("CompilationError", f"not compiled within {allowed_s:g} s", "", "it")]
        except CandidateEnded as end:
            return [_Refusal("CompilationError", f"Triton's compiler failed: {end}", "", "it")]
        if "error" in answer:
            return [_read({**answer["error"], "name": "it"})]
        refused = [_read(each) for each in answer.get("refused") or ()]
        if refused and whole:  # later stages print the reason, and raise an error without it
            said = _diagnoses(self._candidate.output())
            refused = [replace(each, said=said) for each in refused]
        return refused

    def end(self) -> None:
        """End the process, if there is one."""
        candidate, self._candidate, self._served = self._candidate, None, 0
        if candidate is not None:
            self._processes.discard(candidate)


def _diagnoses(printed: str) -> str:
    """Return the errors that Triton's later stages printed, with lines of the kernel's module."""
    found = (
        f"line {line}: {text}" if "kernel-" in file else text
        for file, line, text in _DIAGNOSIS.findall(printed)
        if not text.startswith("Failures have been detected")  # follows every error of a pass
    )
    return "; ".join(dict.fromkeys(found))[:2000]


def _read(said: Any) -> _Refusal:
    def text(name: str) -> str:
        return str(said.get(name, ""))[:8000].encode("utf-8", "replace").decode()

    return _Refusal(text("type"), text("text"), text("where"), text("name"))


def with_texts(record: Any, source: str) -> dict[str, Any] | None:
    """Return a candidate's report of its Triton launches, with each function's source added.

    None if the report is malformed, or if the kernel's module does not parse.

    Args:
        record: Report of launches that a candidate sent.
        source: The kernel's module. Functions that lie in it get their text from here.
    """
    if not isinstance(record, dict):
        return None
    functions = _listed(record.get("functions"), _MOST_FUNCTIONS)
    launches = _listed(record.get("launches"), _MOST_LAUNCHES)
    if functions is None or launches is None:
        return None
    try:
        texts = dict(_functions(source))
    except (SyntaxError, ValueError, RecursionError):
        return None
    written = []
    for function in functions:
        line, name = function.get("line"), function.get("name")
        if not isinstance(name, str):
            return None
        if "text" in function or "error" in function:  # of a file that the kernel wrote
            told = str(function.get("text", ""))[:_MOST_TEXT]
            written.append({**function, "text": told})
        elif type(line) is int and (text := texts.get((line, name))) is not None:
            written.append({**function, "text": text})
        else:
            lost = f"ValueError: @jit functions should be defined in a Python file, unlike {name}"
            written.append({"name": name, "error": lost})
    if not all(type(each.get("function")) is int for each in launches):
        return None
    if not all(0 <= each["function"] < len(functions) for each in launches):
        return None
    return {"functions": written, "launches": launches}


def _listed(value: Any, most: int) -> list[dict[str, Any]] | None:
    """Return a report's list of at most `most` objects; None if it is malformed."""
    if not isinstance(value, list) or len(value) > most:
        return None
    return value if all(isinstance(each, dict) for each in value) else None


def _functions(source: str) -> Iterator[tuple[tuple[int, str], str]]:
    """Yield (first line, name) and the text of every function in a module."""
    # A module with a lone surrogate in a comment or a string can be loaded, but not parsed.
    source = source.encode("utf-8", "replace").decode("utf-8")
    lines = python_lines(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            yield (first, node.name), "".join(lines[first - 1 : node.end_lineno])
