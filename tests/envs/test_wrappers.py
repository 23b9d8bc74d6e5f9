"""Wrappers: Gymnasium's checker, and what the rewards of an episode add up to."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit, TransformReward
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.wrappers import DiscountedReturn
from kernelgym.errors import UnknownName, UsageError
from kernelgym.rewards import REWARDS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply, verdict
from kernelgym.types import RETURN_VARIANTS, Kernel, Verdict

FOUND = (
    *(verdict(status) for status in ("compile_error", "rejected", "unavailable")),
    *(verdict("wrong", trials_passed=passed) for passed in (0, 2)),
    *(verdict("correct", speedup=speedup) for speedup in (0.5, 1.0, 3.0)),
)


def answer(number: int) -> str:
    """Return an answer whose kernel differs from every other number's."""
    return reply(Kernel(f"{SAMPLE_KERNELS['cpp'].source}\nNUMBER = {number}\n", "cpp"))


def make(*script: Verdict, **options: Any) -> KernelEnv:
    options = {"problems": [SAMPLE_PROBLEM], "language": "cpp"} | options
    return KernelEnv(evaluator=ScriptedEvaluator(script), **options)


def play(env: gym.Env[str, str]) -> tuple[list[float], dict[str, Any]]:
    env.reset(seed=1)
    rewards: list[float] = []
    while True:
        _, reward, terminated, truncated, info = env.step(answer(len(rewards)))
        rewards.append(float(reward))
        if terminated or truncated:
            return rewards, info


@given(
    script=st.lists(st.sampled_from(FOUND), min_size=6, max_size=6),
    reward=st.sampled_from(sorted(REWARDS)),
    gamma=st.floats(0, 1),
    returns=st.sampled_from(RETURN_VARIANTS),
    stop_when=st.sampled_from(["correct", "never", "speedup:2", "no_improvement:2"]),
)
def test_rewards_add_up_to_the_return_of_the_first_turn(
    script, reward, gamma, returns, stop_when
) -> None:
    env = make(
        *script, reward=reward, gamma=gamma, returns=returns, stop_when=stop_when, max_turns=6
    )
    wrapped = DiscountedReturn(env)
    for _ in range(2):  # the second episode owes the first nothing
        rewards, info = play(wrapped)
        assert sum(rewards) == pytest.approx(info["turn_returns"][0], abs=1e-9)


def test_each_step_pays_what_its_turn_adds_by_hand() -> None:
    script = (verdict("wrong", trials_passed=2), verdict("rejected"), verdict("correct"))
    env = make(*script, reward="stage2", max_turns=4)
    # 0.475, -0.1 and 1.0 at gamma 0.4; the last is worth as much for one turn more.
    rewards, _ = play(DiscountedReturn(env))
    assert rewards == pytest.approx([0.475, -0.04, 0.16 + 0.064])
    rewards, _ = play(DiscountedReturn(env, returns="max"))
    assert rewards == pytest.approx([0.475, 0.0, 0.0])
    rewards, _ = play(DiscountedReturn(env, 1.0, "max"))
    assert rewards == pytest.approx([0.475, 0.0, 0.525])


def test_a_penalty_is_made_up_for_under_max() -> None:
    env = make(verdict("rejected"), verdict("correct"), reward="stage2")
    rewards, _ = play(DiscountedReturn(env, 0.5, "max"))
    assert rewards == pytest.approx([-0.1, 0.6])


def test_a_time_limit_leaves_what_was_paid() -> None:
    env = make(verdict("correct"), stop_when="never", reward="sparse", gamma=0.5, max_turns=4)
    rewards, _ = play(DiscountedReturn(TimeLimit(env, 2)))
    assert rewards == [1.0, 0.5]


def test_rewards_changed_inside_are_the_ones_that_count() -> None:
    env = make(verdict("correct"), stop_when="never", reward="sparse", gamma=0.5, max_turns=2)
    rewards, _ = play(DiscountedReturn(TransformReward(env, lambda reward: 10 * reward)))
    assert rewards == [10.0, 5.0]


def test_what_cannot_be_wrapped_is_refused() -> None:
    with pytest.raises(UsageError, match="kernelgym environment"):
        DiscountedReturn(gym.make("CartPole-v1"))
    with pytest.raises(UsageError, match="gamma"):
        DiscountedReturn(make(verdict("wrong")), gamma=1.5)
    with pytest.raises(UnknownName, match="sum, max"):
        DiscountedReturn(make(verdict("wrong")), returns="mean")


def test_gymnasiums_checker_and_its_spec() -> None:
    options = {"problems": [SAMPLE_PROBLEM], "evaluator": ScriptedEvaluator()}
    env = DiscountedReturn(gym.make("KernelBench-L1-MultiTurn-v0", **options), gamma=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*different from the unwrapped version")
        check_env(env, skip_render_check=True)
    assert env.spec is not None
    again = env.spec.make()  # the spec remembers the wrapper and what it was given
    assert isinstance(again, DiscountedReturn) and again.gamma == 0.9
    assert again.get_wrapper_attr("max_turns") == 4


def test_in_gymnasiums_vector_environment() -> None:
    envs = gym.make_vec(
        "KernelBench-L1-MultiTurn-v0", 2, vectorization_mode="sync", wrappers=[DiscountedReturn],
        problems=[SAMPLE_PROBLEM], language="cpp", reward="sparse", stop_when="never",
        evaluator=ScriptedEvaluator([verdict("correct")]),
    )  # fmt: skip
    envs.reset(seed=1)
    for turn in range(3):
        _, rewards, *_ = envs.step([answer(turn)] * 2)
        assert rewards == pytest.approx(np.full(2, 0.4**turn))
    envs.close()


def test_a_curriculum_reaches_through_wrappers() -> None:
    env = DiscountedReturn(make(verdict("wrong"), reward="stage1", max_turns=1))
    env.set_wrapper_attr("reward", "sparse")
    assert env.unwrapped.reward is REWARDS["sparse"]
    assert play(env)[0] == [0.0]
