"""A run's own reward weights: over the preset's, at every step, and held to its contract."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.rewards import REWARDS, Weights
from kernelgym.rulesets import RULESETS
from kernelgym_train.config.config import load_config
from kernelgym_train.config.sections import PartWeights
from kernelgym_train.launch.assembly import episode_rules
from kernelgym_train.launch.manifest import manifest

PARTS = [field.name for field in dataclasses.fields(Weights)]
TIMED = ("judge.device=cuda", "judge.timing=true")


def test_every_part_of_a_preset_can_be_weighed() -> None:
    assert [*PartWeights.model_fields] == PARTS
    assert PartWeights().given == {}
    assert load_config().schedule.at(0) is REWARDS["stage2"]


def test_weights_are_over_those_of_each_preset() -> None:
    given_ = ["reward.preset={0: stage1, 9: stage2}", "reward.weights.compile=0.4"]
    config = load_config(None, [*given_, "reward.weights.trials=0"])
    for step, name in ((0, "stage1"), (9, "stage2")):
        found, shipped = config.schedule.at(step), REWARDS[name]
        assert found.weights == dataclasses.replace(shipped.weights, compile=0.4, trials=0.0)
        assert found.name == f"{name}+compile=0.4,trials=0"
        assert found.format_penalty == shipped.format_penalty
    assert episode_rules(config).reward == config.schedule.at(0)
    # Where no call but the first failing one is paid for, verdicts end there.
    assert config.rules.stop_at_first_failure
    about = manifest(config, config.rules)
    assert about["rewards"][9]["weights"]["compile"] == 0.4


def test_speed_is_paid_where_kernels_are_timed() -> None:
    found = load_config(None, ["reward.weights.speed=0.35", *TIMED]).schedule.at(0)
    assert (found.speed, found.weights.speed) == ("optional", 0.35)
    assert load_config(None, ["reward.weights.speed=0"]).schedule.at(0).speed == "none"
    for lacking in (["judge.device=cuda"], []):
        with pytest.raises(UsageError, match=r"speed=0\.35' needs measured speed"):
            load_config(None, ["reward.weights.speed=0.35", *lacking])


def test_weights_against_the_contract_are_refused() -> None:
    with pytest.raises(UsageError, match="would pay a tidy wrong answer more"):
        load_config(None, ["reward.weights.thinking=5"])
    with pytest.raises(UsageError, match="stops at the first failure"):
        load_config(
            None,
            [
                "reward.preset=sparse",
                "reward.weights.trials=0.5",
                "judge.stop_at_first_failure=true",
            ],
        )
    assert load_config(None, ["reward.weights.trials=null"]).rules == RULESETS["strict"]


@given(st.dictionaries(st.sampled_from(PARTS), st.floats(0, 2), max_size=4))
def test_weights_taken_are_those_given(weights: dict[str, float]) -> None:
    overrides = [f"reward.weights.{part}={value!r}" for part, value in weights.items()]
    try:
        found = load_config(None, [*overrides, *TIMED]).schedule.at(0).weights
    except UsageError as refused:
        assert "tidy wrong answer" in str(refused)
        return
    assert found == dataclasses.replace(REWARDS["stage2"].weights, **weights)
