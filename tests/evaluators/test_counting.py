"""Verdicts with hardware counters, and the feedback that tells them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

from kernelgym import Kernel, Problem, UnknownName, UsageError
from kernelgym.counters import Counters
from kernelgym.evaluators.counting import CountingEvaluator
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply, verdict
from kernelgym.types import Verdict

MEASURED = Counters(
    "measured", {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 91.0}, "add", 1, "ncu"
)
KERNEL = SAMPLE_KERNELS["triton"]


class WithCounters(ScriptedEvaluator):
    """A scripted evaluator whose counters are written down."""

    def __init__(self, script: Any = None) -> None:
        super().__init__(script)
        self.profiled: list[str] = []

    def profile(self, problem: Problem, kernel: Kernel, **_: Any) -> Counters:
        self.profiled.append(kernel.digest)
        return MEASURED


def test_counting_evaluator_profiles_a_correct_kernel_once() -> None:
    judge = WithCounters()
    counting = CountingEvaluator(judge)
    found = [counting.evaluate(SAMPLE_PROBLEM, KERNEL) for _ in range(3)]
    assert all(each.counters == MEASURED for each in found)
    assert judge.profiled == [KERNEL.digest] and len(judge.judged) == 3
    assert Verdict.from_dict(found[0].to_dict()) == found[0]


def test_counting_evaluator_leaves_wrong_kernels_alone() -> None:
    judge = WithCounters([verdict("wrong")])
    assert CountingEvaluator(judge).evaluate(SAMPLE_PROBLEM, KERNEL).counters is None
    assert not judge.profiled


def test_counting_evaluator_needs_one_that_reads_counters() -> None:
    with pytest.raises(UsageError, match="ScriptedEvaluator reads no hardware counters"):
        CountingEvaluator(ScriptedEvaluator())


def made(**given: Any) -> Any:
    options = {"problems": [SAMPLE_PROBLEM], "evaluator": WithCounters(), "stop_when": "never"}
    return gym.make("KernelBench-L1-MultiTurn-v0", **(options | given))


def test_env_tells_counters_in_the_next_prompt() -> None:
    env = made(feedback_level="profile", profile="ncu")
    env.reset(seed=1)
    text, *_ = env.step(reply(KERNEL))
    assert "Hardware counters of add, shares of each limit: gmem 91 %" in text
    assert "gpu__dram_throughput" in text


def test_env_without_profile_reads_no_counters() -> None:
    judge = WithCounters()
    env = made(feedback_level="profile", evaluator=judge)
    env.reset(seed=1)
    text, *_ = env.step(reply(KERNEL))
    assert "counters" not in text and not judge.profiled


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"profile": "nsys", "feedback_level": "profile"}, UnknownName),
        ({"profile": "ncu"}, UsageError),
        (
            {
                "profile": "ncu",
                "feedback_level": "profile",
                "evaluator": ScriptedEvaluator(),
            },
            UsageError,
        ),
    ],
)
def test_env_refuses_a_profile_that_cannot_be_told(given: dict[str, Any], error: type) -> None:
    with pytest.raises(error):
        made(**given)
