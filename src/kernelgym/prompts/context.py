"""Context policies: the earlier turns that a prompt shows, and in how much detail.

Contract: a policy is a pure function from the turns played to what is shown of them, the oldest
first; it says how much, and `kernelgym.prompts.observer` cuts that to the budget. A `Context` is a
policy of five fields, equal and printable as data; two are put together with ``|``, which shows
whatever either shows. Seven go by name (see `CONTEXTS`); any object with a method `choose` will do.

Thinking is repeated only by ``whole`` and ``transcript``: it is most of a conversation's length and
helps least. ``transcript`` never changes what it has shown, so each prompt is a prefix of the next,
and a server's cache of prompts holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

from kernelgym.errors import UnknownName, UsageError
from kernelgym.reading import read
from kernelgym.types import Status, Turn

EVERY = 1 << 30
"""Value of `Context.last` with which every attempt is shown."""


class Detail(IntEnum):
    """Level of detail in which a turn is shown."""

    LINE = 1
    """One line with the turn's outcome."""
    KERNEL = 2
    """Kernel of the answer, and the feedback on it."""
    SUMMARY = 3
    """Kernel of the answer, the feedback on it, and the model's own summary of its changes."""
    WHOLE = 4
    """Whole answer, thinking included, and the feedback on it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An earlier turn that a prompt shows, with the level of detail."""

    index: int
    """Index of the turn in the episode."""
    detail: Detail
    or_line: bool = True
    """Whether the turn gets a line where the budget has no room for more."""


@runtime_checkable
class ContextPolicy(Protocol):
    """Policy that chooses what is shown of earlier turns."""

    def choose(self, turns: Sequence[Turn]) -> Sequence[Shown]:
        """Return the earlier turns to show, each at most once, the oldest first."""

    @property
    def asks_summary(self) -> bool:
        """Whether the model is asked to sum up its changes, for later turns to see."""


@dataclass(frozen=True, slots=True)
class Context:
    """Context policy: shows the last attempts, perhaps the best, perhaps a line for others."""

    last: int = 1
    """Number of attempts shown, counted from the last; at least 1."""
    best: bool = False
    """Whether the best attempt so far is shown, if it is not among the last ones."""
    lines: bool = True
    """Whether other attempts, and those without room, get a line each."""
    detail: Detail = Detail.KERNEL
    """Detail in which attempts are shown."""
    append_only: bool = False
    """Whether every prompt is a prefix of the next: all attempts are shown whole, nothing is cut,
    and an episode whose next prompt is over the budget ends."""

    def __post_init__(self) -> None:
        if self.append_only:
            whole = {"last": EVERY, "best": False, "lines": False, "detail": Detail.WHOLE}
            for name, value in whole.items():
                object.__setattr__(self, name, value)
        if isinstance(self.last, bool) or not isinstance(self.last, int) or self.last < 1:
            raise UsageError(f"a context shows at least the last attempt, got last={self.last!r}")
        if self.detail not in (Detail.KERNEL, Detail.SUMMARY, Detail.WHOLE):
            raise UsageError(f"an attempt is shown as KERNEL, SUMMARY or WHOLE, not {self.detail}")
        # A file gives back a number.
        object.__setattr__(self, "detail", Detail(self.detail))

    @property
    def asks_summary(self) -> bool:
        """Whether the model is asked to sum up its changes, for later turns to see."""
        return self.detail is Detail.SUMMARY

    def __or__(self, other: Context) -> Context:
        return Context(
            max(self.last, other.last),
            self.best or other.best,
            self.lines or other.lines,
            max(self.detail, other.detail),
            self.append_only or other.append_only,
        )

    def choose(self, turns: Sequence[Turn]) -> tuple[Shown, ...]:
        """Return the earlier turns to show, the oldest first."""
        wanted = set(range(max(0, len(turns) - self.last), len(turns)))
        if self.best and (best := best_turn(turns)) is not None:
            wanted.add(best)
        return tuple(
            Shown(index, self.detail if index in wanted else Detail.LINE, self.lines)
            for index in range(len(turns))
            if index in wanted or self.lines
        )


CONTEXTS: dict[str, Context] = {
    "last": Context(lines=False),
    "recent": Context(last=2),
    "best": Context(best=True),
    "kernels": Context(last=EVERY, detail=Detail.SUMMARY),
    "window": Context(last=EVERY, lines=False),
    "whole": Context(last=EVERY, lines=False, detail=Detail.WHOLE),
    "transcript": Context(append_only=True),
}
"""Policies by name: the last attempt only; the last two, and a line for each earlier one; the best
and the last, likewise; all kernels with their results and the model's own summaries, but without
its thinking (Kevin-32B, arXiv 2507.11948); all kernels, the oldest dropped by the budget; the
whole conversation; the same, append-only."""


def context_policy(policy: str | ContextPolicy | Mapping[str, Any]) -> ContextPolicy:
    """Return a context policy, given by its name, by the fields of a `Context`, or itself.

    Raises:
        UnknownName: If there is no policy of that name, or a `Context` has no such field.
        UsageError: If it is no policy.
    """
    if isinstance(policy, Mapping):
        return read(Context, policy, "context")
    if isinstance(policy, str):
        if policy not in CONTEXTS:
            raise UnknownName("context", policy, CONTEXTS)
        return CONTEXTS[policy]
    if not isinstance(policy, ContextPolicy):
        raise UsageError(
            f"a context is one of {', '.join(CONTEXTS)}, a kernelgym.Context, or an object "
            f"with a method choose(turns) and a property asks_summary; got {policy!r}"
        )
    return policy


def best_turn(turns: Sequence[Turn]) -> int | None:
    """Return the best attempt's index: correct, fast, most trials passed, compiled.

    None if no attempt held a kernel that was judged. Of equals, the earliest: what came after was
    no improvement. Scores play no part: what is read must not depend on how it is paid.
    """
    judged = [
        index
        for index, turn in enumerate(turns)
        if turn.reply.kernel is not None
        and turn.verdict.valid
        and turn.verdict.status is not Status.REJECTED
    ]

    def merit(index: int) -> tuple[bool, float, float, bool]:
        verdict = turns[index].verdict
        passed = verdict.trials_passed / max(1, verdict.trials)
        return verdict.correct, verdict.speedup_low, passed, verdict.compiled

    return max(judged, key=merit, default=None)


def own_summary(turn: Turn) -> str:
    """Return the model's own summary of an answer, or an empty text.

    That is what it put inside ``<SUMMARY>`` and ``</SUMMARY>``; else the last paragraph of what
    it thought.
    """
    text = turn.action
    end = text.rfind("</SUMMARY>")
    start = text.rfind("<SUMMARY>", 0, max(0, end))
    if 0 <= start < end:
        return text[start + len("<SUMMARY>") : end].strip()
    return turn.reply.thought.strip().rpartition("\n\n")[2].strip()
