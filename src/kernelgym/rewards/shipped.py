"""The reward presets that ship, by name; what each is for is in docs/rewards.md."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym.errors import UnknownName, UsageError
from kernelgym.languages import language as find_language
from kernelgym.rewards.preset import RewardPreset, Weights
from kernelgym.rulesets import Ruleset

REWARDS: Mapping[str, RewardPreset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            RewardPreset(
                "stage1",
                Weights(format=0.3, compile=0.5, trials=0.1, correct=0.1),
                format_penalty=-0.1,
                cheating_penalty=-0.1,
            ),
            RewardPreset(
                "stage2",
                Weights(format=0.1, compile=0.2, trials=0.35, correct=0.35),
                format_penalty=-0.1,
                cheating_penalty=-0.1,
            ),
            RewardPreset(
                "stage3",
                Weights(format=0.05, compile=0.1, correct=0.5, speed=0.35),
                speed="optional",
                format_penalty=-0.1,
                cheating_penalty=-0.1,
            ),
            RewardPreset("sparse", Weights(correct=1.0)),
            RewardPreset(
                "kevin", Weights(correct=0.3, speed=1.0), speed="required", shape="linear"
            ),
            RewardPreset(
                "drkernel",
                Weights(correct=0.5, speed=0.5, custom=0.5),
                speed="required",
                shape="linear",
                cap=3.0,
            ),
            RewardPreset(
                "milestones",
                Weights(correct=1.0, speed=1.0),
                speed="required",
                shape="milestones",
                format_penalty=-0.1,
                cheating_penalty=-1.0,
            ),
            RewardPreset(
                "improvement",
                Weights(correct=0.3, improvement=1.0),
                speed="required",
                shape="linear",
            ),
        )
    }
)
"""The presets that ship: three stages from form to speed, a sparse one, those of two published
recipes (kevin, drkernel), and two that look at speed in other ways."""


def reward_preset(which: str | RewardPreset) -> RewardPreset:
    """Return `which` itself, or the shipped preset of that name.

    Raises:
        UnknownName: If no shipped preset has that name.
        UsageError: If it is neither a preset nor a name.
    """
    if isinstance(which, RewardPreset):
        return which
    if not isinstance(which, str):
        raise UsageError(
            f"a reward is a kernelgym.RewardPreset or the name of one, got {which!r}; known: "
            f"{', '.join(REWARDS)}. A preset weighs the parts of a turn; to pay by a function, "
            "wrap the environment in a gymnasium.RewardWrapper"
        )
    if which not in REWARDS:
        raise UnknownName("reward preset", which, REWARDS)
    return REWARDS[which]


def check_speed(preset: RewardPreset, language: str, device: str, *, timing: bool = True) -> None:
    """Refuse a preset that needs speed where kernels will not be timed.

    Args:
        preset: The preset.
        language: Language of the kernels.
        device: Device they run on.
        timing: Whether the evaluator times kernels at all.

    Raises:
        UsageError: If so; names the shipped presets that fit.
    """
    entry = find_language(language)
    if preset.speed != "required" or (timing and entry.is_timed(device)):
        return
    fitting = ", ".join(name for name, other in REWARDS.items() if other.speed != "required")
    why = (
        f"{language!r} is not timed on device {device!r} (it is on: {', '.join(entry.timed_on)})"
        if timing
        else "the evaluator was made not to time kernels (timing=False)"
    )
    raise UsageError(
        f"reward {preset.name!r} needs measured speed, but {why}; rewards that fit: {fitting}"
    )


def check_trials(preset: RewardPreset, ruleset: Ruleset) -> None:
    """Refuse a preset that pays for a share of the trials where not all of them are made.

    Raises:
        UsageError: If the ruleset stops at the first failure; names the shipped presets that fit.
    """
    if preset.weights.trials and ruleset.stop_at_first_failure:
        fitting = ", ".join(name for name, other in REWARDS.items() if not other.weights.trials)
        raise UsageError(
            f"reward {preset.name!r} pays for the share of calls that agree, but ruleset "
            f"{ruleset.label!r} stops at the first failure; set stop_at_first_failure=False, or "
            f"take a reward that fits: {fitting}"
        )
