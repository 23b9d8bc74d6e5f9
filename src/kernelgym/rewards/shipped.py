"""The reward presets that ship, by name, and checks that a preset fits a run.

Their fields are in shipped.toml; what each is for is in docs/rewards.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from kernelgym.errors import UnknownName, UsageError
from kernelgym.languages import language as find_language
from kernelgym.rewards.preset import RewardPreset, Weights
from kernelgym.rulesets import Ruleset

_SHIPPED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
REWARDS: Mapping[str, RewardPreset] = MappingProxyType(
    {
        name: RewardPreset(name, **{**fields, "weights": Weights(**fields["weights"])})
        for name, fields in _SHIPPED.items()
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
    """Refuse a preset that needs speed if kernels will not be timed.

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
    """Refuse a preset that pays for a share of the calls if a failing call ends a verdict.

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
