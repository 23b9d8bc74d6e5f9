"""The async driver, beside the other ways to play."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.error import InvalidAction
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.envs.drivers import play_episode, play_episodes, step_async
from kernelgym.envs.infos import as_json
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.recording import RecordTrajectories
from kernelgym.envs.vector import KernelVectorEnv
from kernelgym.errors import PolicyFailure, UnknownName, UsageError
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.prompts.observer import render
from kernelgym.records.trajectories import read_records
from kernelgym.testing import (
    SAMPLE_KERNELS,
    SAMPLE_PROBLEM,
    ScriptedEvaluator,
    reply,
)
from kernelgym.types import Answer, Kernel, Message, Problem, Trajectory, Verdict
from support.batches import Held
from support.strategies import texts, verdicts

PROBLEMS = tuple(
    Problem(f"own/{number}", "own", 0, str(number), SAMPLE_PROBLEM.source) for number in range(6)
)
GYM_ID = "kernelgym:KernelBench-L1-MultiTurn-v0"


def answer(says: str, number: int = 0) -> str:
    source = f"{SAMPLE_KERNELS['cpp'].source}\nNUMBER = {number}\n# verdict: {says}\n"
    return reply(Kernel(source, "cpp"))


def saying(*answers: str) -> Callable[[object], Any]:
    """Return a policy that gives these answers, one after the other."""
    left = iter(answers)

    async def policy(_: object) -> str:
        await asyncio.sleep(0)
        return next(left)

    return policy


# -- the same turns whoever drives ---------------------------------------------------------------


@st.composite
def scripts(draw: st.DrawFn) -> tuple[list[list[str]], list[Verdict]]:
    """Answers of several episodes, each at least as many as turns, and the judge's verdicts."""
    pool = draw(st.lists(texts, min_size=1, max_size=3))
    marked = [answer("any", number) for number in range(4)]
    some = st.sampled_from([*pool, *marked])
    episodes = draw(st.lists(st.lists(some, min_size=3, max_size=3), min_size=1, max_size=3))
    return episodes, draw(st.lists(verdicts(), min_size=1, max_size=5))


class ByContent(ScriptedEvaluator):
    """Chooses a verdict by problem and kernel, so that the order of judging plays no part."""

    def __init__(self, found: Sequence[Verdict]) -> None:
        def choose(problem: Problem, kernel: Kernel) -> Verdict:
            return found[int(kernel.digest + problem.id[-1], 16) % len(found)]

        super().__init__(choose)


def comparable(trajectory: Trajectory) -> object:
    assert trajectory.turns
    return dataclasses.asdict(trajectory)


@given(scripts(), st.sampled_from(["correct", "never", "no_improvement:1"]))
@settings(deadline=None, max_examples=60)
def test_sync_vector_and_async_give_the_same_turns(script, stop_when) -> None:
    episodes, found = script
    problems = PROBLEMS[: len(episodes)]
    options: dict[str, Any] = {"language": "cpp", "max_turns": 3, "stop_when": stop_when}

    alone = []
    for problem, answers in zip(problems, episodes, strict=True):
        env = KernelEnv(problems=[problem], evaluator=ByContent(found), **options)
        env.reset()
        for text in answers:
            *_, terminated, truncated, _ = env.step(text)
            if terminated or truncated:
                break
        alone.append(env.episode.trajectory)

    envs = KernelVectorEnv(
        len(problems), problems=problems, evaluator=ByContent(found), autoreset_mode="Disabled",
        **options,
    )  # fmt: skip
    for slot, problem in zip(envs.envs, problems, strict=True):
        slot.reset(options={"problem_id": problem.id})
    over = [False] * len(problems)
    together: list[Any] = [None] * len(problems)
    for turn in range(3):
        for slot, done in enumerate(over):
            if done:  # the finished slots play on, unseen
                envs.envs[slot].reset(options={"problem_id": problems[slot].id})
        envs._over[:] = False
        *_, terminations, truncations, _ = envs.step([answers[turn] for answers in episodes])
        for slot in range(len(problems)):
            if not over[slot]:
                together[slot] = envs.envs[slot].episode.trajectory
                over[slot] = bool(terminations[slot] or truncations[slot])

    async def play() -> list[Trajectory]:
        queues = {p.id: iter(answers) for p, answers in zip(problems, episodes, strict=True)}

        async def one(problem: Problem, judge: AwaitedEvaluator) -> Trajectory:
            async def policy(messages: tuple[Message, ...]) -> str:
                return next(queues[problem.id])

            return await play_episode(problem, policy, judge, **options)

        async with AwaitedEvaluator(ByContent(found)) as judge:
            return list(await asyncio.gather(*(one(problem, judge) for problem in problems)))

    awaited = asyncio.run(play())
    assert [comparable(t) for t in alone] == [comparable(t) for t in together]
    assert [comparable(t) for t in alone] == [comparable(t) for t in awaited]


# -- the driver ----------------------------------------------------------------------------------


def test_the_policy_reads_what_the_environment_shows() -> None:
    seen: list[Any] = []

    async def policy(shown: Any) -> str:
        seen.append(shown)
        return answer("wrong", len(seen))

    options: dict[str, Any] = {"language": "cpp", "max_turns": 2}
    played = asyncio.run(play_episode(SAMPLE_PROBLEM, policy, ScriptedEvaluator(), **options))
    assert [message.role for message in seen[0]] == ["system", "user"]
    assert seen[1][-2].role == "assistant" and "NUMBER = 1" in seen[1][-2].content
    assert played.ended == "budget" and len(played.turns) == 2
    conversation, seen[:] = list(seen), []
    asyncio.run(play_episode(SAMPLE_PROBLEM, policy, ScriptedEvaluator(), reads="text", **options))
    assert seen == [render(messages) for messages in conversation]
    with pytest.raises(UnknownName, match="kind of observation"):
        asyncio.run(
            play_episode(SAMPLE_PROBLEM, policy, ScriptedEvaluator(), reads="tokens")  # type: ignore[arg-type]
        )


def test_an_environment_is_played_through_its_wrappers() -> None:
    judge = Held(workers=len(PROBLEMS))
    env = gym.make(
        GYM_ID, problems=PROBLEMS, language="cpp", evaluator=judge, max_episode_steps=2,
        stop_when="never",
    )  # fmt: skip
    env = gym.wrappers.TransformObservation(env, str.upper, env.observation_space)
    shown: list[str] = []

    async def policy(text: str) -> str:
        shown.append(text)
        return answer("wrong", len(shown))

    options = {"problem_id": "own/3"}
    played = asyncio.run(play_episode(env, policy, reads="text", reset_options=options))
    assert (played.problem.id, len(played.turns), played.ended) == ("own/3", 2, "cut")
    assert all(text == text.upper() for text in shown)
    assert len(judge.judged) == 2  # once per answer, and not again by `step`
    asyncio.run(play_episode(env, policy, judge, seed=3))
    assert not judge.closed


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"ruleset": "kernelbench"}, "the evaluator judges by"),
        ({"device": "cuda:0"}, "the evaluator judges by"),
    ],
)
def test_an_evaluator_that_contradicts_the_environment_is_refused(other, said) -> None:
    env = KernelEnv(problems=PROBLEMS, language="cpp", evaluator=ScriptedEvaluator())
    with pytest.raises(UsageError, match=said):
        asyncio.run(play_episode(env, saying("none"), ScriptedEvaluator(**other)))


def test_arguments_that_make_no_sense() -> None:
    env = KernelEnv(problems=PROBLEMS, language="cpp", evaluator=ScriptedEvaluator())
    with pytest.raises(UsageError, match="max_turns: an environment has its own options"):
        asyncio.run(play_episode(env, saying("none"), max_turns=3))
    with pytest.raises(UsageError, match="or environments of kernelgym"):
        asyncio.run(play_episode(gym.make("CartPole-v1"), saying("none")))
    with pytest.raises(UnknownName, match="max_turn"):
        asyncio.run(play_episode(PROBLEMS[0], saying("none"), ScriptedEvaluator(), max_turn=3))
    with pytest.raises(UsageError, match="at_once"):
        asyncio.run(play_episodes([], saying(), ScriptedEvaluator(), at_once=0))
    with pytest.raises(InvalidAction):
        asyncio.run(play_episode(env, saying(None)))  # type: ignore[arg-type]


def test_problems_are_played_in_the_wrappers_asked_for(tmp_path) -> None:
    path = tmp_path / "played.jsonl"

    async def policy(_: object) -> str:
        return answer("correct")

    played = asyncio.run(
        play_episodes(
            PROBLEMS, policy, ScriptedEvaluator(), language="cpp",
            wrap=lambda env: RecordTrajectories(env, path),
        )
    )  # fmt: skip
    records = {record.trajectory.problem.id: record.trajectory for record in read_records(path)}
    assert records == {trajectory.problem.id: trajectory for trajectory in played}
    env = KernelEnv(problems=PROBLEMS, language="cpp", evaluator=ScriptedEvaluator())
    with pytest.raises(UsageError, match="wrap: an environment has its own options"):
        asyncio.run(play_episode(env, policy, wrap=lambda env: env))


def test_episodes_side_by_side_are_judged_side_by_side() -> None:
    judge = Held(held=True, workers=len(PROBLEMS))
    counts: dict[str, int] = {}

    async def policy(messages: tuple[Message, ...]) -> str:
        text = messages[-1].content
        counts[text] = counts.get(text, 0) + 1
        while len(counts) == len(PROBLEMS) and not judge.go.is_set():
            await asyncio.sleep(0.001)
            if judge.at_once == len(PROBLEMS) - 1:  # all but this one
                judge.go.set()
        return answer("wrong", len(messages))

    options: dict[str, Any] = {"language": "cpp", "max_turns": 2}
    played = asyncio.run(play_episodes(PROBLEMS, policy, judge, **options))
    assert [each.problem.id for each in played] == [problem.id for problem in PROBLEMS]
    assert judge.most_at_once >= len(PROBLEMS) - 1
    assert len(judge.judged) == 2 * len(PROBLEMS)


def test_no_more_episodes_at_once_than_asked_for() -> None:
    live = most = 0

    async def policy(_: object) -> str:
        nonlocal live, most
        live += 1
        most = max(most, live)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        live -= 1
        return "none"

    options: dict[str, Any] = {"language": "cpp", "max_turns": 1, "at_once": 2}
    played = asyncio.run(play_episodes(PROBLEMS, policy, ScriptedEvaluator(), **options))
    assert len(played) == len(PROBLEMS) and most == 2


def test_the_first_error_ends_all_episodes() -> None:
    cancelled: list[str] = []

    async def policy(messages: tuple[Message, ...]) -> str:
        if not cancelled and not begun.is_set():
            begun.set()
            raise RuntimeError("the model is gone")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("yes")
            raise
        return "never"

    begun = threading.Event()
    options: dict[str, Any] = {"language": "cpp"}
    with pytest.raises(RuntimeError, match="the model is gone"):
        asyncio.run(play_episodes(PROBLEMS[:3], policy, ScriptedEvaluator(), **options))
    assert len(cancelled) == 2


def test_an_unavailable_verdict_cuts_its_episode_only() -> None:
    async def policy(messages: tuple[Message, ...]) -> str:
        return answer("unavailable" if "own/1" in str(current.get()) else "wrong")

    import contextvars

    current: contextvars.ContextVar[str] = contextvars.ContextVar("current")

    async def one(problem: Problem, judge: AwaitedEvaluator) -> Trajectory:
        current.set(problem.id)
        return await play_episode(problem, policy, judge, language="cpp", max_turns=2)

    async def play() -> list[Trajectory]:
        async with AwaitedEvaluator(ScriptedEvaluator()) as judge:
            return list(await asyncio.gather(*(one(problem, judge) for problem in PROBLEMS[:3])))

    assert [each.ended for each in asyncio.run(play())] == ["budget", "cut", "budget"]


def test_policy_failure_cuts_its_episode_only(tmp_path) -> None:
    path = tmp_path / "played.jsonl"

    async def policy(messages: tuple[Message, ...]) -> str:
        second = messages[-1].content.startswith("# What became")
        if second and any("NUMBER = 1\n" in message.content for message in messages):
            raise PolicyFailure("dropped")
        return answer("wrong", next(numbers) if not second else 9)

    numbers = iter(range(3))
    played = asyncio.run(
        play_episodes(
            PROBLEMS[:3], policy, ScriptedEvaluator(), language="cpp", max_turns=2,
            stop_when="never", wrap=lambda env: RecordTrajectories(env, path),
        )
    )  # fmt: skip
    ends = [(each.ended, len(each.turns)) for each in played]
    assert ends == [("budget", 2), ("cut", 1), ("budget", 2)]
    records = {record.trajectory.problem.id: record.trajectory for record in read_records(path)}
    assert records == {each.problem.id: each for each in played}


def test_policy_failure_at_once_leaves_no_turn() -> None:
    env = KernelEnv(problems=PROBLEMS, language="cpp", evaluator=ScriptedEvaluator())

    async def policy(_: object) -> str:
        raise PolicyFailure("dropped")

    played = asyncio.run(play_episode(env, policy))
    assert (played.ended, played.turns) == ("cut", ())
    env.reset()
    assert not env.episode.over, "the environment is played on after a reset"


def test_cut_off_answer_of_a_policy_has_the_defect() -> None:
    judge = Held(workers=len(PROBLEMS))
    policy = saying(Answer(answer("wrong"), cut_off=True), answer("wrong", 2))
    played = asyncio.run(
        play_episode(PROBLEMS[0], policy, judge, language="cpp", max_turns=2, stop_when="never")
    )
    assert [turn.reply.defects for turn in played.turns] == [("cut_off",), ()]
    assert len(judge.judged) == 2


def test_wrapper_that_takes_other_actions_is_played() -> None:
    env: Any = KernelEnv(
        problems=PROBLEMS, language="cpp", evaluator=ScriptedEvaluator(), max_turns=2,
        stop_when="never",
    )  # fmt: skip
    numbered = gym.spaces.Discrete(3)
    env = gym.wrappers.TransformAction(env, lambda number: answer("wrong", number), numbered)
    played = asyncio.run(play_episode(env, saying(1, 2)))  # type: ignore[arg-type]
    assert ["NUMBER = 1" in turn.action for turn in played.turns] == [True, False]


# -- one step ------------------------------------------------------------------------------------


def environment(evaluator=None, **options):
    env = KernelEnv(
        problems=[SAMPLE_PROBLEM],
        language="cpp",
        evaluator=evaluator or ScriptedEvaluator(),
        context="transcript",
        **options,
    )
    env.reset(seed=1)
    return env


def stepped(env, text, judge, cut_off=False):
    async def step():
        async with AwaitedEvaluator(judge) as awaited:
            return await step_async(env, text, awaited, cut_off)

    return asyncio.run(step())


@given(st.lists(st.one_of(texts, st.sampled_from([answer("wrong"), answer("correct")]))))
@settings(max_examples=20)
def test_awaited_step_gives_what_a_step_gives(answers):
    one, other = environment(max_turns=3), environment(max_turns=3)
    for text in answers:
        if other.episode.over:
            break
        found, known = stepped(one, text, ScriptedEvaluator()), other.step(text)
        assert found[:4] == known[:4]
        assert as_json(found[4]) == as_json(known[4]) == json.loads(json.dumps(as_json(known[4])))


@given(st.lists(st.one_of(texts, st.just(answer("wrong"))), max_size=3))
@settings(max_examples=20)
def test_news_are_the_only_message_that_a_step_adds_beside_the_answer(answers):
    env = environment(max_turns=4)
    conversation = list(env.messages)
    assert env.news == conversation[-1]
    for text in answers:
        if env.episode.over:
            break
        env.step(text)
        assert list(env.messages[:-2]) == conversation
        assert env.messages[-2].role == "assistant" and env.news.role == "user"
        conversation += [env.messages[-2], env.news]


def test_news_of_a_context_that_rewrites_messages_is_refused():
    env = KernelEnv(problems=[SAMPLE_PROBLEM], language="cpp", evaluator=ScriptedEvaluator())
    env.reset(seed=1)
    with pytest.raises(UsageError, match="context='transcript'"):
        _ = env.news


def test_awaited_step_of_a_cut_off_answer_has_the_defect():
    env = environment(max_turns=2)
    stepped(env, answer("wrong"), ScriptedEvaluator(), cut_off=True)
    assert env.episode.turns[0].reply.defects == ("cut_off",)


def test_awaited_step_whose_judge_fails_can_be_taken_again():
    env = environment(max_turns=2)

    async def broken(problem, kernel):
        raise OSError("the judge is gone")

    with pytest.raises(OSError, match="the judge is gone"):
        asyncio.run(step_async(env, answer("correct"), broken))
    assert not env.episode.turns
    assert stepped(env, answer("correct"), ScriptedEvaluator())[4]["correct"]


def test_info_with_an_object_of_a_wrapper_is_no_plain_data():
    with pytest.raises(TypeError, match="info\\['seen'\\] holds a object"):
        as_json({"seen": object()})


def test_step_of_another_environment_is_refused():
    with pytest.raises(UsageError, match="environments of kernelgym"):
        asyncio.run(step_async(gym.make("CartPole-v1"), "", ScriptedEvaluator().evaluate))
