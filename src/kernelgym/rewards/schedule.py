"""A curriculum of rewards: which preset scores at which training step.

Pure and without state: the step comes from the trainer, and the same step always gives the same
preset, so that a run which is resumed scores as if it had never stopped. It sets nothing; give
what `RewardSchedule.at` returns to ``env.unwrapped.reward``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelgym.errors import UsageError
from kernelgym.rewards.preset import RewardPreset
from kernelgym.rewards.shipped import reward_preset


@dataclass(frozen=True, slots=True)
class RewardSchedule:
    """Presets by the step from which they score. Build one with `reward_schedule`."""

    entries: tuple[tuple[int, RewardPreset], ...]
    """Pairs (first step, preset) by rising step; the first step is 0."""

    def __post_init__(self) -> None:
        steps = [step for step, _ in self.entries]
        whole = all(isinstance(step, int) and not isinstance(step, bool) for step in steps)
        if not (whole and steps[:1] == [0] and steps == sorted(set(steps))):
            raise UsageError(
                "a reward schedule needs whole steps that start at 0 and rise, "
                f"as in {{0: 'stage1', 200: 'stage2'}}; got {steps}"
            )

    def at(self, step: int) -> RewardPreset:
        """Return the preset that scores at a step.

        Raises:
            UsageError: If the step is negative.
        """
        if step < 0:
            raise UsageError(f"a training step is at least 0, got {step}")
        return next(preset for first, preset in reversed(self.entries) if first <= step)


def reward_schedule(
    which: str | RewardPreset | RewardSchedule | Mapping[int, str | RewardPreset],
) -> RewardSchedule:
    """Return a schedule: `which` itself, one preset for all steps, or presets by first step.

    Args:
        which: A schedule, a preset or its name, or a mapping such as
            ``{0: "stage1", 200: "stage2", 600: "stage3"}``.

    Raises:
        UnknownName: If a preset's name is not known.
        UsageError: If the steps do not start at 0, or are not whole numbers.
    """
    if isinstance(which, RewardSchedule):
        return which
    if not isinstance(which, Mapping):
        return RewardSchedule(((0, reward_preset(which)),))
    try:
        steps = sorted(which)
    except TypeError:
        raise UsageError(
            f"the steps of a reward schedule are whole numbers, got {list(which)}"
        ) from None
    return RewardSchedule(tuple((step, reward_preset(which[step])) for step in steps))
