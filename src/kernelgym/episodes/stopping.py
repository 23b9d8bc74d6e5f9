"""Stop rules: when an episode ends before its turn budget is used up.

The rules, as text:

- ``correct`` (default): at the first correct kernel;
- ``never``: only when the budget is used up;
- ``speedup:<x>``: at the first correct kernel whose `speedup_low` is at least x;
- ``no_improvement:<k>``: after k turns in a row without progress: none got further than the best
  before it (compiled, then more trials passed, then correct, then a higher `speedup_low`).

Contract: `ended` looks at the turns alone, so the same turns always end the same way, and at what
the judge said of them, never at their scores: a reward that pays gains pays less for a second gain
that is smaller, and scoring an episode anew must not move its end. ``solved`` is absorbing for
`Trajectory.returns`; that is why an episode that stops improving after it was right ends ``solved``
too: otherwise being right early, which ends play early, would pay less.

In Gymnasium's words ``cut`` is `truncated`, and every other end `terminated`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernelgym.errors import UnknownName, UsageError
from kernelgym.languages import language as find_language
from kernelgym.types import Ended, Status, Turn, Verdict

_FORMS = ("correct", "never", "speedup:<x>", "no_improvement:<k>")


@dataclass(frozen=True, slots=True)
class StopRule:
    """Rule that ends an episode before its turn budget is used up."""

    kind: Literal["correct", "never", "speedup", "no_improvement"] = "correct"
    value: float = 0.0
    """Speedup to reach, or number of turns without improvement."""

    def __post_init__(self) -> None:
        if self.kind == "speedup" and not 0.0 < self.value < math.inf:
            raise UsageError(f"speedup:<x> needs a finite x above 0, got {self.value:g}")
        if self.kind == "no_improvement" and not (self.value >= 1 and self.value % 1 == 0):
            raise UsageError(f"no_improvement:<k> needs a whole k of at least 1, got {self.value}")

    def __str__(self) -> str:
        needs_value = self.kind in ("speedup", "no_improvement")
        return f"{self.kind}:{self.value:g}" if needs_value else self.kind

    @property
    def needs_speed(self) -> bool:
        """Whether the rule can be met only where kernels are timed."""
        return self.kind == "speedup"


def stop_rule(which: str | StopRule) -> StopRule:
    """Return `which` itself, or the rule that its text names.

    Raises:
        UsageError: If there is no such rule, or its number is missing or out of range.
    """
    if isinstance(which, StopRule):
        return which
    kind, colon, text = str(which).partition(":")
    if not colon and kind in ("correct", "never"):
        return StopRule("correct" if kind == "correct" else "never")
    if kind not in ("speedup", "no_improvement"):
        raise UnknownName("stop rule", which, _FORMS)
    try:
        value = float(text)
    except ValueError:
        raise UsageError(
            f"stop rule {which!r} needs a number, as in 'speedup:1.5' or 'no_improvement:3'"
        ) from None
    return StopRule("speedup" if kind == "speedup" else "no_improvement", value)


def check_stop_rule(rule: StopRule, language: str, device: str) -> None:
    """Refuse a rule that needs speed where this language cannot be timed on this device.

    Raises:
        UsageError: If so; names the rules that fit.
    """
    entry = find_language(language)
    if rule.needs_speed and not entry.is_timed(device):
        raise UsageError(
            f"stop rule '{rule}' needs measured speed, but {language!r} is not timed on device "
            f"{device!r} (it is on: {', '.join(entry.timed_on)}); rules that fit: correct, never, "
            "no_improvement:<k>"
        )


def ended(rule: StopRule, turns: Sequence[Turn], max_turns: int) -> Ended:
    """Return why an episode with these turns has ended, or an empty string if it goes on."""
    if not turns:
        return ""
    last = turns[-1].verdict
    if not (last.valid and turns[-1].score.valid):
        return "cut"
    if rule.kind == "correct" and last.correct:
        return "solved"
    if rule.kind == "speedup" and last.correct and last.speedup_low >= rule.value:
        return "solved"
    if rule.kind == "no_improvement" and _turns_without_improvement(turns) >= rule.value:
        return "solved" if any(turn.verdict.correct for turn in turns) else "no_improvement"
    return "budget" if len(turns) >= max_turns else ""


def _turns_without_improvement(turns: Sequence[Turn]) -> int:
    best, since = _progress(turns[0].verdict), 0
    for turn in turns[1:]:
        if (reached := _progress(turn.verdict)) > best:
            best, since = reached, 0
        else:
            since += 1
    return since


def _progress(verdict: Verdict) -> tuple[bool, float, float, bool]:
    """Return how far a kernel got, as a tuple to compare with another's."""
    if verdict.status is Status.REJECTED:  # whatever it computed, it is not the kernel's
        return (False, 0.0, 0.0, False)
    passed = verdict.trials_passed / verdict.trials if verdict.trials else 0.0
    return (verdict.correct, verdict.speedup_low, passed, verdict.compiled)
