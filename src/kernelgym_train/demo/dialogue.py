"""The demonstration's answers in a short form, and the feedback that a label implies.

Contract: pure text. `compact` keeps the code of a module that computes, and drops text that would
only cost a small model tokens; `told` makes feedback from a label alone. In the warm start the
model reads the short prompt (`kernelgym.prompts.short`), as it does in episodes.

Nothing is judged here: the feedback is true only if the label is.
"""

from __future__ import annotations

import re

from kernelgym.answers.parsing import parse
from kernelgym.feedback import feedback
from kernelgym.prompts.short import bare
from kernelgym.types import Feedback, Status, Verdict

_KERNEL = re.compile(r"^def (([a-z]+)_\w+)_kernel\(", re.MULTILINE)
_RENAMED = {
    **dict.fromkeys(("program", "block_id", "i_blk"), "pid"),
    **dict.fromkeys(("idx", "offs", "pos"), "offsets"),
    **dict.fromkeys(("ok", "valid", "inside_mask"), "mask"),
    **dict.fromkeys(("val", "value", "cur"), "v"),
    **dict.fromkeys(("BLOCK", "BLOCK_N", "TILE"), "BLOCK_SIZE"),
    **dict.fromkeys(("numel", "size"), "n_elements"),
    **dict.fromkeys(("width", "length", "row_len"), "n_cols"),
}
"""Identifiers of one of the suite's four vocabularies by those of the others."""
_COUNT = re.compile(r"\btotal = \w+\.numel\(\)")
_POINTER = re.compile(r"^p_(?=\w)|_(?:base|pointer)$")
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_MISSPELT = re.compile(r"tl\.store\(.*, (result_\w+)")


def compact(source: str) -> str:
    """Return a module without blank lines, docstrings and constructors that store nothing.

    Functions around a kernel lose what their names say of the operator, and the suite's four
    vocabularies become one: with fewer ways to write the same kernel, a short training meets the
    same one more often.
    """
    short = bare(source)
    functions = set(_KERNEL.findall(short))
    for name, first in functions:
        plain = "run" if len(functions) == 1 else first
        short = re.sub(rf"\b{name}(?=_kernel\b|\()", plain, short)
    return _WORD.sub(_renamed, _count_renamed(short)) if functions else short


def line_count(source: str) -> int:
    """Return the number of lines that `compact` would leave of a module, without writing them."""
    return bare(source).count("\n")


def _count_renamed(module: str) -> str:
    """Return a module whose element count is not named like an accumulator of other kernels."""
    return re.sub(r"\btotal\b", "n_elements", module) if _COUNT.search(module) else module


def _renamed(word: re.Match[str]) -> str:
    name = word[0]
    if word.string[max(0, word.start() - 1) : word.start()] == ".":
        return name  # a method, such as numel
    if name.startswith("result_"):
        return "result_" + _RENAMED.get(name[7:], name[7:])
    if _POINTER.search(name):
        return _POINTER.sub("", name) + "_ptr"
    return _RENAMED.get(name, name)


def answer_of(source: str) -> str:
    """Return the text of a model's answer that holds a module."""
    return f"<KERNEL>\n{compact(source)}</KERNEL>"


def told(answer: str, status: Status, device: str = "cpu") -> Feedback:
    """Return the feedback, at the level ``minimal``, on an answer with a given label.

    It holds only facts that the label decides. `kernelgym.prompts.short.brief` gives the same text
    for it as for the judge's own feedback.

    Args:
        answer: Text with a broken kernel, as `answer_of` returns it.
        status: Label of the answer: ``wrong``, or ``runtime_error`` for a name that does not exist
            or, on the CPU, an access beyond a tensor's end.
        device: Device that judges; Triton compiles for a GPU, and is interpreted on the CPU.

    Raises:
        ValueError: If the label decides no feedback.
    """
    reply = parse(answer, "triton")
    if status is Status.WRONG:
        verdict = Verdict(status, compiled=True, trials=1, max_abs_error=1.0, message="wrong")
    elif status is Status.RUNTIME_ERROR and (message := _message(answer, device)):
        verdict = Verdict(status, compiled=True, trials=1, message=message)
    else:
        raise ValueError(f"the label {status.value} alone does not decide a feedback")
    return feedback(verdict, reply, level="minimal", budget=200)


def _message(answer: str, device: str) -> str:
    """Return the judge's message for a kernel that fails on a device; empty if unknown."""
    missing = _MISSPELT.search(answer)
    if device != "cpu":
        where = f"    {missing[0]}\n    ^\n" if missing else ""
        said = f"NameError('{missing[1]} is not defined')" if missing else ""
        return f"CompilationError: at 1:0:\n{where}{said}" if missing else ""
    if missing:
        return f"NameError: name {missing[1]!r} is not defined"
    return "IndexError: out-of-bounds load"
