"""What an environment's options make of the text that a model reads."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import kernelgym  # noqa: F401 - registers the ids
from kernelgym.errors import UsageError
from kernelgym.prompts.context import CONTEXTS
from kernelgym.prompts.observer import render
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply, verdict
from kernelgym.types import Kernel
from support.feedback_cases import timed, wrong

ENV_ID = "KernelBench-L1-MultiTurn-v0"
PATTERN = "only the last row"
SCRIPT = [wrong(PATTERN, 131), timed(0.8), verdict("wrong"), timed(1.4)]


def answer(number: int) -> str:
    source = f"{SAMPLE_KERNELS['triton'].source}# variant {number}.\n"
    return reply(Kernel(source, "triton"), f"thought {number}")


def make(**options: object) -> gym.Env[str, str]:
    given = {"problems": [SAMPLE_PROBLEM], "evaluator": ScriptedEvaluator(SCRIPT)}
    return gym.make(ENV_ID, stop_when="never", max_turns=4, **given | options)  # type: ignore[arg-type]


def played(**options: object) -> tuple[str, dict[str, object]]:
    env = make(**options)
    env.reset(seed=1)
    for number in range(1, 4):
        observation, *_, info = env.step(answer(number))
    return observation, info


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_observation_is_the_text_of_the_messages_under_every_context(context: str) -> None:
    env = make(context=context)
    observation, info = env.reset(seed=1)
    for number in range(1, 5):
        assert observation == render(env.unwrapped.messages)
        assert env.unwrapped.messages[-1].role == "user"
        counted = sum(-(-len(message.content) // 4) for message in env.unwrapped.messages)
        assert type(info["prompt_tokens"]) is int and info["prompt_tokens"] == counted
        assert env.observation_space.contains(observation)
        observation, *_, info = env.step(answer(number))


def test_the_context_and_its_budget_are_options() -> None:
    assert played()[0].count("# variant") == 2
    assert played(context="whole")[0].count("thought") == 3
    assert played(context=CONTEXTS["last"])[0].count("# variant") == 1
    assert played(context_tokens=0)[0].count("# variant") == 1


def test_the_level_and_the_budget_of_feedback_are_options() -> None:
    assert PATTERN in played()[0]
    assert PATTERN not in played(feedback_level="minimal", context="window")[0]
    assert "Profile of one call" in played(feedback_level="profile")[0]
    env = make(feedback_tokens=100)
    env.reset(seed=1)
    for number in range(1, 5):
        env.step(answer(number))
        assert len(str(env.unwrapped.episode.turns[-1].feedback)) <= 400


def test_tokens_are_counted_by_the_given_counter() -> None:
    env = make(count_tokens=lambda text: len(text.split()) + 1)
    _, info = env.reset(seed=1)
    messages = env.unwrapped.messages
    assert info["prompt_tokens"] == sum(len(m.content.split()) + 1 for m in messages)


def test_prompt_tokens_bound_every_prompt() -> None:
    env = make(context="window")
    _, first = env.reset(seed=1)
    lengths = [first["prompt_tokens"]]
    lengths += [env.step(answer(number))[-1]["prompt_tokens"] for number in range(1, 4)]
    limit = (lengths[1] + lengths[-1]) // 2
    env = make(context="window", prompt_tokens=limit)
    assert env.reset(seed=1)[1]["prompt_tokens"] == lengths[0]
    played = [env.step(answer(number)) for number in range(1, 4)]
    assert max(info["prompt_tokens"] for *_, info in played) <= limit < lengths[-1]
    assert "# variant 3" in played[-1][0] and "# variant 1" not in played[-1][0]
    with pytest.raises(UsageError, match="prompt_tokens=100; raise it"):
        make(prompt_tokens=100).reset(seed=1)


def test_vector_environments_gather_prompt_lengths_as_numbers() -> None:
    envs = gym.make_vec(
        ENV_ID, num_envs=2, problems=[SAMPLE_PROBLEM], evaluator=ScriptedEvaluator(SCRIPT)
    )
    _, infos = envs.reset(seed=1)
    assert np.issubdtype(infos["prompt_tokens"].dtype, np.integer)
    assert (infos["prompt_tokens"] > 100).all()
    assert [m.role for m in envs.unwrapped.envs[1].messages] == ["system", "user"]


@pytest.mark.parametrize(
    "options",
    [
        {"context": "everything"},
        {"context_tokens": 1.5},
        {"prompt_tokens": "all"},
        {"feedback_level": "loud"},
        {"feedback_tokens": 99},
        {"count_tokens": 4},
        {"count_tokens": lambda text: "three"},
    ],
)
def test_bad_options_fail_at_make(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        make(**options)
