"""Refills: further rounds of a step, for groups that had nothing to teach.

Contract: groups without signal (`kernelgym_train.credit.estimators.has_signal`) are put aside, and
as many others are asked for, in at most so many extra rounds; a step that is still short goes on
with fewer groups. What was thrown away is counted.

It draws nothing and plays nothing. The loop around it::

    fill = Refill(wanted, rule)
    while fill.missing:
        problems = sampler.draw(step, fill.missing, fill.round)
        fill.add(await play(tasks_of(step, problems, size, first=fill.groups), ...))
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelgym.errors import UsageError
from kernelgym_train.credit.credit import CreditRule, group_returns
from kernelgym_train.credit.estimators import has_signal
from kernelgym_train.types import Rollout


class Refill:
    """Collects the groups of one step, and returns how many more are needed.

    Args:
        wanted: Number of groups with signal that the step needs.
        rule: Rule of credit, which decides whether a group has signal.
        extra_rounds: Most rounds after the first.

    Raises:
        UsageError: If a number is out of range.
    """

    def __init__(self, wanted: int, rule: CreditRule, extra_rounds: int = 2) -> None:
        if wanted < 1 or extra_rounds < 0:
            raise UsageError(
                f"a step has at least 1 group and 0 extra rounds, got {wanted} and {extra_rounds}"
            )
        self.wanted, self.rule, self.extra_rounds = wanted, rule, extra_rounds
        self.round = 0
        """Number of the next round."""
        self.groups = 0
        """Number of groups played so far, which is the index of the next group in the step."""
        self.rollouts: list[Rollout] = []
        """Rollouts of the groups with signal."""
        self.discarded: list[Rollout] = []
        """Rollouts of groups without signal; the sampler learns from them too."""
        self._kept = 0

    @property
    def missing(self) -> int:
        """Number of groups to play in the next round; 0 if there is no further round."""
        return 0 if self.round > self.extra_rounds else self.wanted - self._kept

    @property
    def waste(self) -> float:
        """Share of all answers that belong to groups without signal."""
        discarded = sum(len(each.completions) for each in self.discarded)
        return discarded / max(1, discarded + sum(len(each.completions) for each in self.rollouts))

    def add(self, rollouts: Iterable[Rollout]) -> None:
        """Add the rollouts of one round.

        Raises:
            ValueError: If more groups come than were missing, or one that was there before.
        """
        groups: dict[tuple[int, int], list[Rollout]] = {}
        for rollout in sorted(rollouts, key=lambda each: each.key):
            groups.setdefault(rollout.key.group, []).append(rollout)
        before = {each.key.group for each in (*self.rollouts, *self.discarded)}
        if len(groups) > self.missing or before & groups.keys():
            raise ValueError(
                f"round {self.round} of a step brought groups {sorted(groups)}, but {self.missing} "
                f"new ones were missing beside {sorted(before)}"
            )
        for group in groups.values():
            if has_signal(self.rule.estimator, group_returns(group, self.rule)):
                self._kept += 1
                self.rollouts += group
            else:
                self.discarded += group
        self.round += 1
        self.groups += len(groups)
