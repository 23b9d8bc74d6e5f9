"""Parse a model's text into its kernel, its thinking, and the defects of its form.

Contract: `parse` takes any string, never raises and takes linear time. The last well-formed
answer wins. Three forms are looked for, and the first form that holds an answer is the one used:

1. a ``<KERNEL>...</KERNEL>`` block, with or without a fenced block inside;
2. a fenced block;
3. the text itself, if it is nothing but a module.

An answer is Python that defines ``class ModelNew``. Code with a syntax error still is an answer
(the judge will say `compile_error`), but among several a well-formed one is preferred.

It does not judge the code: that is the business of `kernelgym.answers.screening` and of the judge.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from kernelgym.answers.python_source import UnreadableSource, read_python
from kernelgym.types import Kernel, Reply

__all__ = ["DEFECTS", "parse"]

DEFECTS = {
    "no_kernel_tag": "the answer is not inside <KERNEL> and </KERNEL>",
    "unclosed_kernel": "<KERNEL> is opened but never closed; the text may have been cut off",
    "unclosed_fence": "a fenced code block is opened but never closed",
    "unclosed_think": "<think> is opened but never closed; the text may have been cut off",
    "several_answers": "there is more than one answer; the last well-formed one was taken",
    "no_model_new": "a code block was found, but it does not define class ModelNew",
    "no_answer": "no kernel was found in the text",
    "cut_off": "the answer ran into the limit of new tokens and was cut off",
}
"""Meaning of every defect code. `parse` reports all but ``cut_off``, which only the sampler of the
text can know (see `kernelgym.episodes.episode.Episode.read`)."""

_THINK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_TAG = re.compile(r"<(/?)KERNEL>")
_FENCE = re.compile(r"^[ \t]{0,12}(`{3,}|~{3,})(.*)$", re.MULTILINE)
_MODEL_NEW = re.compile(r"^[ \t]*class[ \t]+ModelNew\b", re.MULTILINE)
_MODULE_START = re.compile(r"^(?:import|from)[ \t]+[\w.]+|^class[ \t]+ModelNew\b", re.MULTILINE)
_BLANK_EDGES = re.compile(r"\A(?:[ \t]*\n)+")


@dataclass(frozen=True, slots=True)
class _Fence:
    body: str
    closed: bool


def parse(text: str, language: str) -> Reply:
    """Read one reply of a model.

    Args:
        text: The model's text, of any length and content.
        language: Language of the kernel; it is stored with the kernel and not checked.

    Returns:
        The reply; `Reply.kernel` is None if there is no answer.
    """
    rest, thought, defects = _split_thought(text)
    source, more = _find_answer(rest)
    kernel = None if source is None else Kernel(source, language)
    return Reply(kernel, thought, tuple(dict.fromkeys(defects + more)))


def _split_thought(text: str) -> tuple[str, str, list[str]]:
    """Return (text without thinking blocks, the thinking, defects)."""
    kept: list[str] = []
    thoughts: list[str] = []
    position, inside, first = 0, False, True
    for tag in _THINK.finditer(text):
        closing = bool(tag.group(1))
        if closing and first:
            # Chat templates often open the block in the prompt: the text begins inside it.
            inside = True
        first = False
        if closing != inside:
            continue  # "<think>" mentioned inside a thought, or a stray closing tag
        (thoughts if inside else kept).append(text[position : tag.start()])
        position, inside = tag.end(), not closing
    (thoughts if inside else kept).append(text[position:])
    thought = "\n".join(part for part in (t.strip() for t in thoughts) if part)
    return "\n".join(kept), thought, ["unclosed_think"] if inside else []


def _find_answer(text: str) -> tuple[str | None, list[str]]:
    """Return (source of the answer or None, defects)."""
    blocks, unclosed = _tagged_blocks(text)
    fences = _fences(text)
    defects = ["unclosed_kernel"] if unclosed else []
    tagged = [_unfenced(block) for block in blocks]
    answers = [source for source in tagged if _MODEL_NEW.search(source)]
    if not answers:
        defects += ["no_kernel_tag"] if not (blocks or unclosed) else []
        found = [fence for fence in fences if _MODEL_NEW.search(fence.body)]
        answers = [_tidy(fence.body) for fence in found]
        defects += ["unclosed_fence"] if found and not found[-1].closed else []
    if not answers and (bare := _bare_module(text, fences)) is not None:
        answers = [bare]
    if not answers:
        shown = any(block.strip() for block in blocks) or any(f.body.strip() for f in fences)
        return None, [*defects, "no_model_new" if shown else "no_answer"]
    if len(set(answers)) > 1:
        defects.append("several_answers")
    return _last_well_formed(answers), defects


def _last_well_formed(answers: list[str]) -> str:
    if len(answers) > 1:
        for source in reversed(answers):
            if not isinstance(read_python(source), UnreadableSource):
                return source
    return answers[-1]


def _tagged_blocks(text: str) -> tuple[list[str], bool]:
    """Return (contents of the closed blocks, whether the last opening tag stays open)."""
    blocks: list[str] = []
    start: int | None = None
    for tag in _TAG.finditer(text):
        if not tag.group(1):
            start = tag.end()  # an earlier tag still open was only mentioned in prose
        elif start is not None:
            blocks.append(text[start : tag.start()])
            start = None
    return blocks, start is not None


def _fences(text: str) -> list[_Fence]:
    """Return the fenced blocks of `text`; the last may be unclosed."""
    found: list[_Fence] = []
    marker, start = "", 0
    for line in _FENCE.finditer(text):
        ticks, rest = line.group(1), line.group(2).strip()
        if not marker:
            if "`" not in rest:  # otherwise it is inline code
                marker, start = ticks, line.end() + 1
        elif not rest and ticks[0] == marker[0] and len(ticks) >= len(marker):
            found.append(_Fence(text[start : max(start, line.start())], True))
            marker = ""
    if marker:
        found.append(_Fence(text[start:], False))
    return found


def _unfenced(block: str) -> str:
    """Return the code of a tagged block: its last fence that is an answer, or all of it."""
    fences = _fences(block)
    for fence in reversed(fences):
        if _MODEL_NEW.search(fence.body):
            return _tidy(fence.body)
    return _tidy(block)


def _bare_module(text: str, fences: list[_Fence]) -> str | None:
    """Return `text` from its first import on, if it is a module written without any block."""
    text = _TAG.sub("", text)
    if fences or not _MODEL_NEW.search(text):
        return None
    start = _MODULE_START.search(text)
    return _tidy(text[start.start() :] if start else text)


def _tidy(source: str) -> str:
    """Return `source` with Unix line ends, no blank first lines, no common indentation."""
    source = _BLANK_EDGES.sub("", source.replace("\r\n", "\n")).rstrip()
    if source[:1] in (" ", "\t"):
        source = textwrap.dedent(source)
    return source + "\n"
