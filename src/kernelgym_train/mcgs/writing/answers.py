"""`read_answer`: the kernel in a model's answer, with its move and predicted gain.

An answer may begin with lines ``MOVE: id``, ``GAIN: 0.3`` and ``SUMMARY: one sentence``. The kernel
is a patch of the shown kernel (`kernelgym_train.mcgs.writing.patches`), or a whole module as
`kernelgym.answers.parsing` reads it. Where an answer has both, the patch counts.

Contract: an answer is read whole or refused by `AnswerRefused`, whose message is told to the
writer. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from kernelgym import Kernel, UsageError
from kernelgym.answers.parsing import DEFECTS, parse
from kernelgym_train.mcgs.variant import Variant, read_variant, state_key
from kernelgym_train.mcgs.writing.patches import PatchRefused, apply_patch, read_patch

FILE = "kernel_module.py"
"""Name of the file that an answer changes."""
FREE_MOVE = "free"
"""Id of the move that stands for a change of any kind."""
AnswerForm = Literal["patch", "whole"]
_THOUGHT = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_HEADER = re.compile(r"^[ \t*#-]*(MOVE|GAIN|SUMMARY)[ \t*]*:(.*)$", re.MULTILINE)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")
_MOST_SUMMARY = 200
_MOST_GAIN = 1000.0
_INEXACT = re.compile(
    r"fast-math|fast_math|-Ofast|associative-math|unsafe-math|finite-math|reciprocal-math"
)


class AnswerRefused(ValueError):
    """An answer without a kernel that can be judged; the message is told to its writer.

    Args:
        kind: Kind of the fault, such as ``not_found`` or ``cut_off``.
        message: Message that says what was found, and what is needed.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class WrittenKernel:
    """Kernel read from a writer's answer, with the move and gain that the answer states."""

    variant: Variant
    """Kernel that the answer describes, without steps."""
    form: AnswerForm
    move: str = ""
    """Id of the move that the answer names; empty if it names none."""
    predicted_gain: float | None = None
    """Share by which the writer expects the kernel to be faster; None if it does not say."""
    summary: str = ""
    """The writer's description of the change, in one line."""


def read_answer(
    text: str,
    parent: Kernel,
    *,
    cut_off: bool = False,
    moves: Collection[str] | None = None,
    approximate: bool = False,
) -> WrittenKernel:
    """Return the kernel in an answer.

    Args:
        text: The answer, with or without thinking in front.
        parent: Kernel that a patch changes.
        cut_off: Whether the answer ended at its limit of tokens.
        moves: Ids of the moves that an answer may name; None for any.
        approximate: Whether the kernel may ask the compiler for less accurate arithmetic.

    Raises:
        AnswerRefused: If the answer holds no kernel, or one that is not allowed.
    """
    if cut_off:
        raise AnswerRefused(
            "cut_off",
            "the answer ended at its limit of tokens, before it was complete; think less, and give "
            "a patch in place of the whole module",
        )
    plain = _THOUGHT.sub("", text)
    found = {name: value.strip(" \t*") for name, value in reversed(_HEADER.findall(plain))}
    move = found.get("MOVE", "").strip("`")
    if moves is not None and move and move not in moves:
        raise AnswerRefused(
            "unknown_move", f"the move {move!r:.60} is none of: {', '.join(sorted(moves))}"
        )
    source, form = _source(plain, parent)
    try:
        variant = read_variant(Kernel(source, parent.language), any_form=True)
        same = state_key(variant) == state_key(read_variant(parent, any_form=True))
    except (UsageError, SyntaxError, ValueError, RecursionError) as error:
        raise AnswerRefused("unreadable", str(error)) from None
    if same:
        raise AnswerRefused(
            "no_change", "the kernel is the same but for comments and layout; change what it does"
        )
    if (
        not approximate
        and (asked := _INEXACT.search(source))
        and not _INEXACT.search(parent.source)
    ):
        raise AnswerRefused(
            "approximate",
            f"{asked[0]!r} makes results less accurate, and this search allows "
            "only moves that keep accuracy (approximate=false); leave it "
            "out",
        )
    said = "".join(mark if mark.isprintable() else " " for mark in found.get("SUMMARY", ""))
    summary = " ".join(said.split())[:_MOST_SUMMARY]
    return WrittenKernel(variant, form, move, _gain(found.get("GAIN", "")), summary)


def is_inexact(variant: Variant) -> bool:
    """Return True if a kernel asks the compiler for less accurate arithmetic."""
    return _INEXACT.search(variant.kernel().source) is not None


def _source(text: str, parent: Kernel) -> tuple[str, AnswerForm]:
    """Return the module's text in an answer, and its form: a patch or a whole module."""
    try:
        if hunks := read_patch(text, FILE):
            return apply_patch(parent.source, hunks), "patch"
    except PatchRefused as refused:
        raise AnswerRefused(refused.kind, str(refused)) from None
    reply = parse(text, parent.language)
    if reply.kernel is not None:
        return reply.kernel.source, "whole"
    told = "; ".join(DEFECTS.get(defect, defect) for defect in reply.defects)
    raise AnswerRefused(
        "no_answer",
        f"the answer has neither a patch of {FILE} nor a whole module ({told or 'it is empty'})",
    )


def _gain(text: str) -> float | None:
    """Return the share in ``0.3``, ``30 %`` or ``1.3x`` (0.3 each); None without a number."""
    found = _NUMBER.search(text)
    if found is None:
        return None
    value = float(found[0])
    rest = text[found.end() :].lstrip()
    if rest.startswith("%"):
        value /= 100.0
    elif rest[:1].lower() == "x" or rest.startswith("\N{MULTIPLICATION SIGN}"):
        value -= 1.0
    return value if math.isfinite(value) and -1.0 < value <= _MOST_GAIN else None
