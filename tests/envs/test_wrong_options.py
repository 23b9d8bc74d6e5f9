"""A wrong option is refused in one line: what was given, what is known, what to do."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

import kernelgym
from kernelgym.errors import UsageError
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"context_tokens": -1}, "context_tokens must be at least 0, got -1"),
    ({"hardware": "H1000"}, "unknown GPU 'H1000'.*did you mean.*H100"),
    ({"hardware": 3}, r"Hardware, got 3; give the name of a GPU, such as 'H100'"),
    ({"evaluator": ScriptedEvaluator}, r"got the class ScriptedEvaluator; call it first"),
    ({"evaluator": "local"}, "'local' is not an address of a verdict service"),
    ({"reward": lambda turn: 1.0}, "got <function .*known: stage1, .*RewardWrapper"),
    ({"examples": [1]}, r"one of zero_shot, one_shot, few_shot; got \[1\]"),
    ({"examples": 1.5}, "got 1.5"),
    ({"problems": 3.5}, r"got 3.5 \(float\); give ids, numbers, a range"),
    ({"problems": "Synthetic/L1/3"}, "is of level 1, and level 2 was asked for; .*level=None"),
    ({"problems": "L1/3"}, "'Synthetic/L1/3' is of level 1"),
    ({"problems": "KernelBench/L2/3"}, "is of suite KernelBench, and suite='Synthetic'"),
    ({"problems": "nonsense"}, "unknown problem 'nonsense'; known: Synthetic/L2/1"),
    ({"allow_degenerate": 1}, "allow_degenerate is True or False, got 1"),
    ({"exclude_degenerate": "no"}, "exclude_degenerate is True or False, got 'no'"),
    ({"contex": "last"}, "unknown option 'contex'; did you mean context"),
]


@pytest.mark.parametrize(("options", "says"), WRONG, ids=lambda one: str(one)[:30])
def test_option_wrong_is_refused_in_a_line(options: dict[str, Any], says: str) -> None:
    given = {"evaluator": ScriptedEvaluator(), "language": "cpp"} | options
    with pytest.raises(UsageError, match=says) as refused:
        gym.make("Synthetic-L2-MultiTurn-v0", **given)
    assert "\n" not in str(refused.value)


def test_problems_of_one_problem_is_that_problem() -> None:
    env = gym.make(
        kernelgym.ENV_IDS[0],
        problems=SAMPLE_PROBLEM,
        evaluator=ScriptedEvaluator(),
        language="cpp",
    )
    assert env.reset()[1]["problem_id"] == SAMPLE_PROBLEM.id


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"problem_id": "KernelBench/L1/1"}, "is of suite KernelBench, and .* plays Synthetic"),
        ("L2/3", "a dictionary such as"),
    ],
)
def test_reset_option_wrong_is_refused(options: Any, says: str) -> None:
    env = gym.make("Synthetic-L2-MultiTurn-v0", evaluator=ScriptedEvaluator(), language="cpp")
    with pytest.raises(UsageError, match=says):
        env.unwrapped.reset(options=options)


@pytest.mark.parametrize("num_envs", [0, "2", True, 1.0])
def test_num_envs_no_number_is_refused(num_envs: Any) -> None:
    with pytest.raises(UsageError, match="num_envs must be a whole number, at least 1, got"):
        kernelgym.KernelVectorEnv(num_envs, suite="Synthetic", evaluator=ScriptedEvaluator())
