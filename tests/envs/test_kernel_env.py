"""What one environment does: problems, answers, endings, infos, rendering, closing."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgym import judge
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.spaces import KernelText
from kernelgym.errors import UnknownName, UsageError
from kernelgym.rewards import PARTS, REWARDS, reward_schedule
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply, verdict
from kernelgym.types import Answer, Kernel, Problem, Verdict

ANSWER = reply(SAMPLE_KERNELS["triton"])


def answer(number: int) -> str:
    """Return an answer whose kernel differs from every other number's."""
    kernel = SAMPLE_KERNELS["triton"]
    return reply(Kernel(f"{kernel.source}\nNUMBER = {number}\n", kernel.language))


def make(*script: Verdict, **options: Any) -> KernelEnv:
    evaluator = ScriptedEvaluator(script or None)
    options.setdefault("problems", [SAMPLE_PROBLEM])
    return KernelEnv(evaluator=evaluator, **options)


def test_observation_is_the_whole_prompt() -> None:
    env = make(verdict("wrong", trials_passed=1))
    observation, _ = env.reset(seed=0)
    assert SAMPLE_PROBLEM.source.strip() in observation and "triton.jit" in observation
    later, *_ = env.step(ANSWER)
    assert SAMPLE_PROBLEM.source.strip() in later
    assert SAMPLE_KERNELS["triton"].source.strip() in later and "wrong" in later


def test_solved() -> None:
    env = make(verdict("wrong"), verdict("correct"), reward="sparse", gamma=0.5)
    env.reset()
    _, reward, terminated, truncated, info = env.step(answer(1))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["turn"], info["turns_left"], info["turn_scores"]) == (1, 3, ())
    _, reward, terminated, truncated, info = env.step(answer(2))
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert (info["ended"], info["status"], info["correct"]) == ("solved", "correct", True)
    assert info["turn_scores"] == (0.0, 1.0)
    # Solved is absorbing: the last score repeats to the horizon of four turns.
    assert info["turn_returns"] == pytest.approx((0.875, 1.75))


def test_budget_used_up_is_terminated() -> None:
    env = make(verdict("wrong"), max_turns=2)
    env.reset()
    assert env.step(answer(1))[2:4] == (False, False)
    *_, terminated, truncated, info = env.step(answer(2))
    assert (terminated, truncated) == (True, False)
    assert (info["ended"], info["turns_left"]) == ("budget", 0)
    assert len(info["turn_scores"]) == len(info["turn_returns"]) == 2


def test_no_improvement_is_terminated() -> None:
    env = make(verdict("wrong"), max_turns=9, stop_when="no_improvement:1")
    env.reset()
    env.step(answer(1))
    *_, terminated, truncated, info = env.step(answer(2))
    assert (terminated, truncated, info["ended"]) == (True, False, "no_improvement")


def test_single_turn_is_terminated_whatever_the_answer() -> None:
    for text in (ANSWER, "", "no kernel"):
        env = make(verdict("wrong"), max_turns=1)
        env.reset()
        assert env.step(text)[2:4] == (True, False)


def test_a_failure_of_the_judge_truncates_and_scores_nothing() -> None:
    env = make(verdict("unavailable", message="worker lost"))
    env.reset()
    _, reward, terminated, truncated, info = env.step(ANSWER)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["valid"], info["ended"], info["status"]) == (False, "cut", "unavailable")
    assert info["turn_scores"] == (0.0,)


def test_rewards_are_the_scores_of_the_preset() -> None:
    env = make(verdict("wrong", trials_passed=2), verdict("correct"), reward="stage2")
    env.reset()
    _, reward, *_, info = env.step(answer(1))
    assert reward == pytest.approx(0.1 + 0.2 + 0.35 * 2 / 4)
    assert info["reward_parts"]["compile"] == pytest.approx(0.2)
    _, reward, *_ = env.step(answer(2))
    assert reward == pytest.approx(1.0)


def test_a_kernel_that_should_have_been_timed_is_no_sample() -> None:
    env = make(verdict("correct"), reward="kevin", language="cpp")
    env.reset()
    _, _, terminated, truncated, info = env.step(reply(SAMPLE_KERNELS["cpp"]))
    assert (terminated, truncated) == (False, True)
    assert (info["valid"], info["ended"], info["status"]) == (False, "cut", "correct")


def test_the_reward_may_be_switched_between_episodes() -> None:
    schedule = reward_schedule({0: "stage1", 10: "sparse"})
    env = make(verdict("compile_error"), reward=schedule.at(0))
    env.reset()
    env.reward = schedule.at(10)
    _, reward, *_ = env.step(answer(1))
    assert reward == pytest.approx(0.3), "an episode keeps the preset it began with"
    env.reset()
    _, reward, *_ = env.step(answer(1))
    assert reward == 0.0
    env.reward = "stage1"
    assert env.reward is REWARDS["stage1"]


def test_a_reward_that_does_not_fit_is_refused_whenever_it_is_set() -> None:
    env = make()
    for name in ("kevin", "drkernel", "milestones", "improvement"):
        with pytest.raises(UsageError, match="not timed"):
            env.reward = name
    with pytest.raises(UnknownName):
        env.reward = "gold"
    assert env.reward is REWARDS["stage2"]
    make(language="cpp").reward = "kevin"


def test_a_reward_that_needs_speed_is_refused_if_the_evaluator_does_not_time() -> None:
    options = {
        "problems": [SAMPLE_PROBLEM],
        "language": "cpp",
        "evaluator": ScriptedEvaluator(timed=False),
    }
    with pytest.raises(UsageError, match="timing=False"):
        KernelEnv(**options, reward="kevin")
    KernelEnv(**options, reward="stage3")


def test_a_share_of_the_trials_needs_all_of_them_made() -> None:
    hasty = dataclasses.replace(RULESETS["strict"], stop_at_first_failure=True)
    for name, preset in REWARDS.items():
        evaluator = ScriptedEvaluator(ruleset=hasty)
        options = {"problems": [SAMPLE_PROBLEM], "language": "cpp", "evaluator": evaluator}
        if not preset.weights.trials:
            KernelEnv(**options, reward=name)
            continue
        with pytest.raises(UsageError, match="stop_at_first_failure"):
            KernelEnv(**options, reward=name)


def test_a_siblings_reward_is_its_own() -> None:
    env = make()
    twin = env.sibling()
    twin.reward = "sparse"
    assert env.reward is REWARDS["stage2"]


@pytest.mark.parametrize(("returns", "first"), [("sum", 0.5 + 0.25), ("max", 0.5)])
def test_the_variant_of_the_returns_in_the_last_info(returns: str, first: float) -> None:
    env = make(
        verdict("wrong"), verdict("correct"),
        reward="sparse", gamma=0.5, returns=returns, max_turns=3,
    )  # fmt: skip
    env.reset()
    env.step(answer(1))
    *_, info = env.step(answer(2))
    assert info["turn_returns"][0] == pytest.approx(first)
    with pytest.raises(UnknownName, match="sum"):
        make(returns="mean")


def test_a_timed_verdict_reaches_the_info() -> None:
    env = make(verdict("correct", speedup=4.0, speedup_low=3.0), language="cpp")
    env.reset()
    *_, info = env.step(reply(SAMPLE_KERNELS["cpp"]))
    assert info["timed"] is True
    assert (info["speedup"], info["speedup_low"]) == (4.0, 3.0)
    assert (info["kernel_ms"], info["reference_ms"]) == (0.25, 1.0)
    assert info["verdict"].speedup == 4.0


def test_nothing_is_judged_without_a_kernel_or_twice() -> None:
    env = make(verdict("wrong"))
    evaluator = env.evaluator
    assert isinstance(evaluator, ScriptedEvaluator)
    env.reset()
    *_, info = env.step("I cannot do this.")
    assert info["status"] == "no_kernel" and evaluator.judged == []
    for _ in range(2):
        *_, info = env.step(ANSWER)
        assert info["status"] == "wrong"
    assert len(evaluator.judged) == 1


@pytest.mark.parametrize("action", [None, 3, b"bytes", ["text"], {"text": "x"}])
def test_actions_that_are_no_text(action: Any) -> None:
    env = make()
    env.reset()
    with pytest.raises(InvalidAction, match="str"):
        env.step(action)
    assert env.step(np.str_(ANSWER))[2]  # a numpy string is one, and no turn was lost


def test_stepping_outside_an_episode() -> None:
    env = make()
    with pytest.raises(ResetNeeded, match="no episode"):
        env.step(ANSWER)
    env.reset()
    assert env.step(ANSWER)[2]
    with pytest.raises(ResetNeeded, match="solved"):
        env.step(ANSWER)
    env.reset()
    assert env.step(ANSWER)[2]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.text(alphabet=st.characters(), max_size=400))
def test_any_text_is_an_answer(text: str) -> None:
    env = make(verdict("wrong"))
    env.reset()
    observation, reward, _, _, info = env.step(text)
    assert env.observation_space.contains(observation) and math.isfinite(reward)
    check_info(info)


@pytest.mark.parametrize(
    "text",
    ["é\U0001f600“”\ud800", "(" * 1_000_000, "-" * 100_000 + "x", "a" + ".b" * 100_000, "\0" * 999],
    ids=["unicode", "parens", "minus", "attributes", "nul"],
)
@pytest.mark.parametrize(
    "form", ["{}", "<KERNEL>{}</KERNEL>", "```python\nclass ModelNew: {}\n```"]
)
def test_hostile_texts(text: str, form: str) -> None:
    env = make(verdict("compile_error"))
    env.reset()
    observation, *_, info = env.step(form.format(text))
    assert env.observation_space.contains(observation)
    assert info["status"] in ("no_kernel", "rejected", "compile_error")


def check_info(info: dict[str, Any]) -> None:
    for key, value in info.items():
        if key in ("turn_scores", "turn_returns"):
            assert type(value) is tuple and all(type(item) is float for item in value)
        elif key == "retrieved":
            assert type(value) is tuple and all(type(item) is str for item in value)
        elif key == "reward_parts":
            assert tuple(value) == PARTS
            assert all(type(part) is float and math.isfinite(part) for part in value.values())
        elif key == "verdict":
            assert isinstance(value, Verdict)
        else:
            assert type(value) in (str, int, float, bool), key
            assert value == value, key  # not NaN


def test_info_keys_and_types_never_change() -> None:
    script = [
        verdict("wrong", trials_passed=1),
        verdict("correct", speedup=2.0),
        verdict("runtime_error"),
        verdict("unavailable"),
    ]
    env = make(*script, language="cpp", stop_when="never", max_turns=9)
    _, first = env.reset()
    check_info(first)
    for number in range(len(script)):
        kernel = SAMPLE_KERNELS["cpp"]
        text = reply(Kernel(f"{kernel.source}\nNUMBER = {number}\n", "cpp"))
        *_, info = env.step(text)
        check_info(info)
        assert set(info) == set(first) | {"verdict"}
        assert all(type(info[key]) is type(first[key]) for key in first)


def test_infos_are_fresh_objects() -> None:
    env = make()
    _, one = env.reset()
    _, two = env.reset()
    assert one is not two and one["reward_parts"] is not two["reward_parts"]


def test_unknown_reset_options_name_the_known() -> None:
    env = make()
    with pytest.raises(UsageError, match="kernel, problem_id"):
        env.reset(options={"seed": 3})
    env.reset(options={})


def test_starting_from_a_kernel_shows_it_unjudged() -> None:
    env = make(verdict("wrong"))
    evaluator = env.evaluator
    assert isinstance(evaluator, ScriptedEvaluator)
    source = "class ModelNew:\n    NAME = 'é'"
    observation, info = env.reset(options={"kernel": source})
    assert source in observation and (info["turn"], info["status"]) == (0, "")
    assert evaluator.judged == []
    later, *_ = env.step(ANSWER)
    assert source in later
    again, _ = env.reset()
    assert source not in again
    for bad in ("", "  \n", "kernels/mine.py", 3, Kernel("x = 1", "cpp")):
        with pytest.raises(UsageError, match="kernel"):
            env.reset(options={"kernel": bad})


def test_parts_of_the_observer_are_shown_beside_the_kernel_to_start_from() -> None:
    env = make()
    part = lambda problem, turns, room: f"NOTE on {problem.id}"  # noqa: E731
    env.observer = dataclasses.replace(env.observer, parts=(part,))
    observation, _ = env.reset(options={"kernel": "start = 1  # ModelNew"})
    assert f"NOTE on {SAMPLE_PROBLEM.id}" in observation and "start = 1" in observation


def test_a_failed_reset_leaves_the_episode_alone() -> None:
    env = make(verdict("wrong"))
    env.reset()
    env.step(ANSWER)
    with pytest.raises(UsageError):
        env.reset(options={"problem_id": "nope"})
    *_, info = env.step(answer(2))
    assert info["turn"] == 2


def test_render_modes(capsys: pytest.CaptureFixture[str]) -> None:
    env = make(verdict("correct"), render_mode="ansi")
    env.reset()
    assert "turn 0 of 4" in str(env.render())
    env.step(ANSWER)
    assert "turn 1 of 4" in str(env.render()) and "solved" in str(env.render())
    assert capsys.readouterr().out == ""
    human = make(verdict("correct"), render_mode="human")
    human.reset()
    human.step(ANSWER)
    assert human.render() is None
    assert capsys.readouterr().out.count(SAMPLE_PROBLEM.id) == 3


def test_rendering_without_a_mode_warns() -> None:
    env = make()
    env.reset()
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


def test_an_evaluator_that_was_given_is_never_closed() -> None:
    env = make()
    evaluator = env.evaluator
    assert isinstance(evaluator, ScriptedEvaluator)
    env.reset()
    env.close()
    env.close()
    assert not evaluator.closed


def test_the_shared_evaluator_is_taken_late_and_released(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[ScriptedEvaluator] = []

    def shared_evaluator(**options: Any) -> ScriptedEvaluator:
        assert options["device"] == "cpu" and options["ruleset"].name == "strict"
        taken.append(ScriptedEvaluator())
        return taken[-1]

    monkeypatch.setattr(judge, "shared_evaluator", shared_evaluator, raising=False)
    env = KernelEnv(problems=[SAMPLE_PROBLEM])
    env.reset()
    env.step("no kernel")
    assert taken == []
    env.step(ANSWER)
    assert len(taken) == 1 and not taken[0].closed
    env.close()
    env.close()
    assert taken[0].closed and len(taken) == 1


def test_problems_may_be_given_outright() -> None:
    other = Problem("own/1", "own", 0, "one", SAMPLE_PROBLEM.source)
    env = make(problems=(SAMPLE_PROBLEM, other))
    assert env.reset(options={"problem_id": "own/1"})[1]["level"] == 0


def test_wrappers_work() -> None:
    env: gym.Env[Any, Any] = make(verdict("wrong"), max_turns=9)
    env = gym.wrappers.TimeLimit(gym.wrappers.RecordEpisodeStatistics(env), 2)
    env.reset()
    env.step(answer(1))
    *_, terminated, truncated, info = env.step(answer(2))
    assert (terminated, truncated) == (False, True)
    assert "turn_scores" in info


def test_text_space() -> None:
    space = KernelText(100, seed=1)
    assert "" in space and "é“\U0001f600\ud800\n" in space and "x" * 100 in space
    assert "x" * 101 not in space and b"x" not in space and None not in space
    assert space == KernelText(100) and space != KernelText(99) and space != gym.spaces.Text(100)
    assert hash(space) == hash(KernelText(100)) and repr(space) == "KernelText(100)"
    assert all(len(space.sample()) <= 100 and space.sample() in space for _ in range(20))
    assert len(KernelText(3).sample()) == 3
    assert KernelText(seed=5).sample() == KernelText(seed=5).sample()


def test_answer_that_was_cut_off_has_the_defect() -> None:
    options = {"problems": [SAMPLE_PROBLEM], "evaluator": ScriptedEvaluator(), "stop_when": "never"}
    env = gym.make("kernelgym:KernelBench-L1-MultiTurn-v0", **options)
    env = gym.wrappers.TransformObservation(env, str.upper, env.observation_space)
    env.reset()
    assert Answer(ANSWER, cut_off=True) in env.action_space
    _, whole, *_ = env.step(Answer(ANSWER))
    _, cut, *_, info = env.step(Answer(ANSWER, cut_off=True))
    first, second = env.unwrapped.episode.turns
    assert (first.reply.defects, second.reply.defects) == ((), ("cut_off",))
    assert cut < whole and info["correct"]
    assert type(second.action) is str and second.reply.kernel == first.reply.kernel
