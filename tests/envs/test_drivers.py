"""The awaitable evaluator and the async driver, beside the other ways to play."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.error import InvalidAction
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.envs.drivers import play_episode, play_episodes
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.recording import RecordTrajectories
from kernelgym.envs.vector import KernelVectorEnv
from kernelgym.errors import JudgeError, PolicyFailure, UnknownName, UsageError
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.prompts.observer import render
from kernelgym.records.trajectories import read_records
from kernelgym.testing import (
    SAMPLE_KERNELS,
    SAMPLE_PROBLEM,
    ScriptedEvaluator,
    reply,
    verdict,
)
from kernelgym.types import Answer, Job, Kernel, Message, Problem, Status, Trajectory, Verdict
from support.strategies import texts, verdicts

PROBLEMS = tuple(
    Problem(f"own/{number}", "own", 0, str(number), SAMPLE_PROBLEM.source) for number in range(6)
)
GYM_ID = "kernelgym:KernelBench-L1-MultiTurn-v0"


def answer(says: str, number: int = 0) -> str:
    source = f"{SAMPLE_KERNELS['cpp'].source}\nNUMBER = {number}\n# verdict: {says}\n"
    return reply(Kernel(source, "cpp"))


def kernel(says: str, number: int = 0) -> Kernel:
    return Kernel(f"NUMBER = {number}\n# verdict: {says}\n", "cpp")


def saying(*answers: str) -> Callable[[object], Any]:
    """Return a policy that gives these answers, one after the other."""
    left = iter(answers)

    async def policy(_: object) -> str:
        await asyncio.sleep(0)
        return next(left)

    return policy


class Batches(ScriptedEvaluator):
    """Remembers the size of every batch; may be held until it is let go."""

    def __init__(self, held: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.batches: list[int] = []
        self.begun, self.go = threading.Event(), threading.Event()
        if not held:
            self.go.set()

    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        jobs = list(jobs)
        self.batches.append(len(jobs))
        self.begun.set()
        assert self.go.wait(30)
        for index, job in reversed(list(enumerate(jobs))):  # in an order of its own
            yield index, super().evaluate(job.problem, job.kernel)

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        return self.evaluate_many([Job(problem, kernel)])[0]


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
    judge = Batches()
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
    with pytest.raises(UsageError, match="max_turns: not beside an environment"):
        asyncio.run(play_episode(env, saying("none"), max_turns=3))
    with pytest.raises(UsageError, match="of kernelgym is played"):
        asyncio.run(play_episode(gym.make("CartPole-v1"), saying("none")))
    with pytest.raises(UnknownName, match="max_turn"):
        asyncio.run(play_episode(PROBLEMS[0], saying("none"), ScriptedEvaluator(), max_turn=3))
    with pytest.raises(UsageError, match="at_once"):
        asyncio.run(play_episodes([], saying(), ScriptedEvaluator(), at_once=0))
    with pytest.raises(UsageError, match="at least 1"):
        AwaitedEvaluator(ScriptedEvaluator(), most=0)
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
    with pytest.raises(UsageError, match="wrap: not beside an environment"):
        asyncio.run(play_episode(env, policy, wrap=lambda env: env))


def test_episodes_side_by_side_are_judged_together() -> None:
    judge = Batches()
    counts: dict[str, int] = {}

    async def policy(messages: tuple[Message, ...]) -> str:
        text = messages[-1].content
        counts[text] = counts.get(text, 0) + 1
        return answer("wrong", len(messages))

    options: dict[str, Any] = {"language": "cpp", "max_turns": 2}
    played = asyncio.run(play_episodes(PROBLEMS, policy, judge, **options))
    assert [each.problem.id for each in played] == [problem.id for problem in PROBLEMS]
    assert judge.batches[0] == len(PROBLEMS)
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
    judge = Batches()
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


# -- the awaitable evaluator ---------------------------------------------------------------------


async def ask(judge: AwaitedEvaluator, *kernels: Kernel) -> list[Any]:
    asked = (judge.evaluate(SAMPLE_PROBLEM, each) for each in kernels)
    return list(await asyncio.gather(*asked, return_exceptions=True))


def run_with(evaluator: Any, *kernels: Kernel, **options: Any) -> list[Any]:
    async def run() -> list[Any]:
        async with AwaitedEvaluator(evaluator, **options) as judge:
            return await asyncio.wait_for(ask(judge, *kernels), 30)

    return asyncio.run(run())


def test_what_is_awaited_together_is_judged_together() -> None:
    evaluator = Batches()
    kernels = [kernel(says, i) for i, says in enumerate(["wrong", "correct 2", "timeout"] * 3)]
    found = run_with(evaluator, *kernels)
    assert [each.status for each in found] == ["wrong", "correct", "timeout"] * 3
    assert evaluator.batches == [9] and not evaluator.closed
    evaluator = Batches()
    run_with(evaluator, *kernels, most=4)
    assert sorted(evaluator.batches) == [1, 4, 4]


def test_awaited_kernels_are_judged_by_their_seeds() -> None:
    evaluator = ScriptedEvaluator()
    seeds = ["", "1f", "", "ab"]

    async def run() -> list[Verdict]:
        async with AwaitedEvaluator(evaluator, batches=1) as judge:
            asked = (judge.evaluate(SAMPLE_PROBLEM, kernel("wrong"), seed=seed) for seed in seeds)
            return list(await asyncio.wait_for(asyncio.gather(*asked), 30))

    assert [found.seed for found in asyncio.run(run())] == seeds
    assert evaluator.seeds == seeds


def test_the_loop_goes_on_while_kernels_are_judged() -> None:
    async def run() -> Status:
        evaluator = Batches(held=True)
        async with AwaitedEvaluator(evaluator) as judge:
            task = asyncio.create_task(judge.evaluate(SAMPLE_PROBLEM, kernel("wrong")))
            while not evaluator.begun.is_set():
                await asyncio.sleep(0.001)
            evaluator.go.set()  # only a loop that is not blocked gets here
            return (await asyncio.wait_for(task, 30)).status

    assert asyncio.run(run()) is Status.WRONG


def test_what_comes_while_all_batches_are_busy_is_judged_afterwards() -> None:
    async def run() -> list[Verdict]:
        evaluator = Batches(held=True)
        async with AwaitedEvaluator(evaluator, batches=1) as judge:
            first = asyncio.create_task(judge.evaluate(SAMPLE_PROBLEM, kernel("wrong")))
            while not evaluator.begun.is_set():
                await asyncio.sleep(0.001)
            rest = asyncio.create_task(ask(judge, kernel("timeout"), kernel("correct")))
            await asyncio.sleep(0.01)
            assert evaluator.batches == [1]
            evaluator.go.set()
            found = [await first, *await asyncio.wait_for(rest, 30)]
            assert evaluator.batches == [1, 2]
            return found

    assert [each.status for each in asyncio.run(run())] == ["wrong", "timeout", "correct"]


class Faulty(ScriptedEvaluator):
    """Raises, ends early or numbers wrongly, as its kernels ask for."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self.error = error or RuntimeError("the judge broke")

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        if "timeout" in kernel.source:
            raise self.error
        return super().evaluate(problem, kernel, seed=seed)


class Forgetful(ScriptedEvaluator):
    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        yield 0, verdict("wrong")


class Misnumbering(ScriptedEvaluator):
    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        yield 0, verdict("wrong")
        yield 7, verdict("wrong")


@pytest.mark.parametrize(
    "error", [RuntimeError("the judge broke"), UsageError("no such language"), SystemError("x")]
)
@pytest.mark.parametrize("most", [1, 2, 256])
def test_an_error_reaches_the_caller_that_it_concerns(error, most) -> None:
    kernels = [kernel("wrong", 1), kernel("timeout", 2), kernel("correct", 3), kernel("timeout", 4)]
    found = run_with(Faulty(error), *kernels, most=most)
    assert found[0].status == "wrong" and found[2].status == "correct"
    assert found[1] is error and found[3] is error


@pytest.mark.parametrize(
    "error", [StopIteration(), CancelledError(), asyncio.CancelledError()], ids=repr
)
def test_errors_that_futures_do_not_take_leave_nobody_waiting(error) -> None:
    found = run_with(Faulty(error), kernel("timeout", 1), kernel("wrong", 2))
    assert isinstance(found[0], JudgeError) and found[0].__cause__ is error
    assert isinstance(found[1], JudgeError) or found[1].status == "wrong"


@pytest.mark.parametrize("kind", [Forgetful, Misnumbering])
def test_an_evaluator_that_loses_jobs_leaves_nobody_waiting(kind) -> None:
    found = run_with(kind(), kernel("wrong", 1), kernel("correct", 2), kernel("timeout", 3))
    assert [each.status for each in found] == ["wrong", "correct", "timeout"]


def test_a_cancelled_caller_disturbs_no_other() -> None:
    async def run() -> None:
        evaluator = Batches(held=True)
        async with AwaitedEvaluator(evaluator, batches=1) as judge:
            running = [
                asyncio.create_task(judge.evaluate(SAMPLE_PROBLEM, kernel("wrong", i)))
                for i in range(3)
            ]
            while not evaluator.begun.is_set():
                await asyncio.sleep(0.001)
            waiting = [
                asyncio.create_task(judge.evaluate(SAMPLE_PROBLEM, kernel("correct", 10 + i)))
                for i in range(3)
            ]
            await asyncio.sleep(0.01)
            running[1].cancel()
            waiting[1].cancel()
            await asyncio.sleep(0)
            evaluator.go.set()
            kept = [running[0], running[2], waiting[0], waiting[2]]
            found = await asyncio.wait_for(asyncio.gather(*kept), 30)
            assert [each.status for each in found] == ["wrong", "wrong", "correct", "correct"]
            assert running[1].cancelled() and waiting[1].cancelled()
        # What had begun was judged to its end; what had not was taken back.
        sources = [job.kernel.source for job in evaluator.judged]
        assert any("NUMBER = 1\n" in source for source in sources)
        assert not any("NUMBER = 11\n" in source for source in sources)

    asyncio.run(run())


def test_closing_leaves_nobody_waiting_and_the_evaluator_open() -> None:
    async def run() -> None:
        evaluator = Batches(held=True)
        judge = AwaitedEvaluator(evaluator, batches=1)
        begun = asyncio.create_task(judge.evaluate(SAMPLE_PROBLEM, kernel("wrong")))
        while not evaluator.begun.is_set():
            await asyncio.sleep(0.001)
        left = asyncio.create_task(judge.evaluate(SAMPLE_PROBLEM, kernel("correct")))
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(judge.close())
        with pytest.raises(JudgeError, match="closed before"):
            await asyncio.wait_for(left, 30)
        evaluator.go.set()
        await asyncio.wait_for(closing, 30)
        assert (await begun).status == "wrong" and not evaluator.closed
        with pytest.raises(UsageError, match="is closed"):
            await judge.evaluate(SAMPLE_PROBLEM, kernel("wrong"))

    asyncio.run(run())


def test_room_for_a_batch_is_given_back() -> None:
    async def run() -> list[Verdict]:
        async with AwaitedEvaluator(ScriptedEvaluator(), batches=1) as judge:
            return [
                await asyncio.wait_for(judge.evaluate(SAMPLE_PROBLEM, kernel("wrong", i)), 30)
                for i in range(5)
            ]

    assert len(asyncio.run(run())) == 5


def test_one_serves_several_event_loops() -> None:
    judge = AwaitedEvaluator(ScriptedEvaluator())
    for _ in range(2):
        (found,) = asyncio.run(ask(judge, kernel("wrong")))
        assert found.status == "wrong"
    jobs = [Job(SAMPLE_PROBLEM, kernel("timeout")), Job(SAMPLE_PROBLEM, kernel("correct"))]
    assert [each.status for each in asyncio.run(judge.evaluate_many(jobs))] == [
        "timeout", "correct",
    ]  # fmt: skip
    asyncio.run(judge.close())
