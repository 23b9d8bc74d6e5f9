"""Gymnasium's own checker on every id, with every warning an error."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

import kernelgym
from kernelgym.testing import ScriptedEvaluator

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def checkout(kernelbench_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(kernelbench_checkout))


@pytest.mark.parametrize("env_id", kernelgym.ENV_IDS)
def test_check_env(env_id: str) -> None:
    env = gym.make(env_id, evaluator=ScriptedEvaluator())
    try:
        check_env(env.unwrapped)
    finally:
        env.close()


@pytest.mark.parametrize("env_id", ["KernelBench-L1-SingleTurn-v0", "KernelBench-L1-MultiTurn-v0"])
def test_check_env_is_deterministic_with_a_scripted_evaluator(env_id: str) -> None:
    env = gym.make(env_id, evaluator=ScriptedEvaluator())
    spec = env.unwrapped.spec
    assert spec is not None
    spec.nondeterministic = False  # the checker then compares observations, rewards and infos
    check_env(env.unwrapped, skip_render_check=True)


def test_the_whole_stack_of_make_raises_no_warning() -> None:
    env = gym.make("KernelBench-L1-MultiTurn-v0", evaluator=ScriptedEvaluator())
    observation, _ = env.reset(seed=1)
    for answer in ("no kernel", "still none", "", "é \U0001f600 “ ”"):
        assert env.observation_space.contains(observation)
        observation, *_ = env.step(answer)
    env.close()


def test_a_refused_first_reset_loses_nothing() -> None:
    env = gym.make("KernelBench-L1-SingleTurn-v0", evaluator=ScriptedEvaluator())
    with pytest.raises(kernelgym.UsageError, match="known"):
        env.reset(options={"problem_id": "nonsense"})
    env.reset(seed=1)
    _, _, terminated, *_ = env.step("no kernel")
    assert terminated
    env.close()
