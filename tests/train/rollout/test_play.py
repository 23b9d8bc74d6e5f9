"""The rollout loop: order, barriers, failures, limits and seeds, with scripted policies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym import JudgeError, Kernel, PolicyFailure, Problem, UsageError, Verdict
from kernelgym.benchmark.run.generations import request_seed
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.prompts.observer import Observer
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator, verdict
from kernelgym.types import Status
from kernelgym_train.credit.credit import counts
from kernelgym_train.rollout.play import Task, play, tasks_of
from kernelgym_train.types import Completion, Finish, Key, PromptTooLong, Rollout, SampleRequest

OBSERVER = Observer("triton", "cpu", "kernelbench", max_turns=3, examples="zero_shot")
NEVER = EpisodeConfig(stop_when="never")


def problems(count: int) -> list[Problem]:
    source = SAMPLE_PROBLEM.source
    return [Problem(f"P/L1/{n}", "P", 1, f"{n}", f"{source}# {n}\n") for n in range(count)]


def text(request: SampleRequest, status: str = "wrong") -> str:
    key = request.key
    body = f"class ModelNew:  # {key.problem} {key.trajectory} {key.turn}\n    pass\n"
    return f"<KERNEL>\n{body}# verdict: {status}\n</KERNEL>"


def completion(request: SampleRequest, answer: str, finish: Finish = "stop") -> Completion:
    return Completion(answer, (1, 2), (3, *request.key), None, finish, 7)


class Batches:
    """Answers in batches, and remembers them."""

    def __init__(self, status: str = "wrong", finish: Finish = "stop") -> None:
        self.batches: list[list[SampleRequest]] = []
        self.status, self.finish = status, finish

    def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        self.batches.append(list(requests))
        return [completion(each, text(each, self.status), self.finish) for each in requests]


class Stream:
    """Answers each request after its own number of turns of the event loop."""

    def __init__(self, delays: dict[tuple[int, int, int], int] | None = None) -> None:
        self.asked: list[Key] = []
        self.delays = delays or {}

    async def sample(
        self, requests: Sequence[SampleRequest]
    ) -> AsyncIterator[tuple[int, Completion]]:
        for index, request in enumerate(requests):
            self.asked.append(request.key)
            for _ in range(self.delays.get(request.key[1:], 0)):
                await asyncio.sleep(0)
            yield index, completion(request, text(request))


def run(policy: object, evaluator: object = None, **options: object) -> list[Rollout]:
    judge = ScriptedEvaluator(ruleset="kernelbench") if evaluator is None else evaluator
    tasks = options.pop("tasks", None) or tasks_of(5, problems(2), 3)
    rules = options.pop("rules", NEVER)
    return asyncio.run(play(tasks, policy, judge, OBSERVER, rules, **options))  # type: ignore[arg-type]


def test_a_batch_policy_is_asked_once_a_turn_in_the_order_of_keys() -> None:
    policy = Batches()
    rollouts = run(policy)
    assert [len(batch) for batch in policy.batches] == [6, 6, 6]
    for turn, batch in enumerate(policy.batches):
        expected = [Key(5, p, t, turn) for p in range(2) for t in range(3)]
        assert [request.key for request in batch] == expected
    assert [rollout.key for rollout in rollouts] == [
        Key(5, p, t) for p in range(2) for t in range(3)
    ]
    assert all(len(rollout.completions) == 3 for rollout in rollouts)


def test_the_order_in_which_verdicts_come_does_not_show_in_batches() -> None:
    class Scrambling(ScriptedEvaluator):
        def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
            time.sleep(int(kernel.digest[:2], 16) / 2e4)
            return super().evaluate(problem, kernel, seed=seed)

    policy = Batches()
    run(policy, Scrambling(ruleset="kernelbench", workers=6))
    for batch in policy.batches:
        assert [request.key for request in batch] == sorted(request.key for request in batch)


def test_trajectories_that_end_early_leave_the_batch() -> None:
    class Some(Batches):
        def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
            self.batches.append(list(requests))
            return [
                completion(each, text(each, "correct" if each.key.trajectory == 1 else "wrong"))
                for each in requests
            ]

    policy = Some()
    rollouts = run(policy, rules=EpisodeConfig())
    assert [len(batch) for batch in policy.batches] == [6, 4, 4]
    assert [rollout.trajectory.ended for rollout in rollouts] == ["budget", "solved", "budget"] * 2


def test_turns_are_those_of_an_environment() -> None:
    """The same answers and verdicts give the same turns and the same text as `KernelEnv`."""
    policy = Batches()
    (rollout,) = run(policy, tasks=tasks_of(0, problems(1), 1), rules=EpisodeConfig())
    env = KernelEnv(
        problems=problems(1),
        evaluator=ScriptedEvaluator(ruleset="kernelbench"),
        max_turns=3,
        examples="zero_shot",
    )
    env.reset()
    for turn, (request,) in zip(rollout.trajectory.turns, policy.batches, strict=True):
        assert request.messages == env.messages
        env.step(turn.action)
    assert env.episode.trajectory == rollout.trajectory


def test_a_slow_trajectory_keeps_no_other_waiting() -> None:
    policy = Stream({(0, 0, 0): 10_000})
    rollouts = run(policy)
    first = policy.asked.index(Key(5, 0, 0, 1))
    assert first == len(policy.asked) - 2, "all others had played to their end by then"
    assert all(rollout.trajectory.ended == "budget" for rollout in rollouts)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=18, max_size=18))
def test_the_order_in_which_answers_come_decides_nothing(delays: list[int]) -> None:
    keys = [(p, t, turn) for p in range(2) for t in range(3) for turn in range(3)]
    slow = run(Stream(dict(zip(keys, delays, strict=True))))
    assert slow == run(Stream())


def test_at_once_bounds_what_is_played_at_the_same_time() -> None:
    class Counting(Stream):
        most = now = 0

        async def sample(
            self, requests: Sequence[SampleRequest]
        ) -> AsyncIterator[tuple[int, Completion]]:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            async for found in super().sample(requests):
                self.now -= 1
                yield found

    policy = Counting()
    assert len(run(policy, at_once=2)) == 6
    assert policy.most == 2


class Failing(ScriptedEvaluator):
    """Raises for some kernels, each time or the first few times."""

    def __init__(self, where: str, times: int = 1 << 30, error: Exception | None = None) -> None:
        super().__init__(ruleset="kernelbench")
        self.where, self.times = where, times
        self.error = error or JudgeError("the worker is gone")

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        if self.where in kernel.source and self.times > 0:
            self.times -= 1
            raise self.error
        return super().evaluate(problem, kernel, seed=seed)


@pytest.mark.parametrize("error", [JudgeError("gone"), RuntimeError("boom"), OSError(5, "io")])
def test_a_failure_of_the_evaluator_costs_one_verdict_and_no_trajectory(error: Exception) -> None:
    rollouts = run(Batches(), Failing("# 1 2 1", error=error))
    assert len(rollouts) == 6
    lost = {rollout.key: rollout for rollout in rollouts if not rollout.trajectory.valid}
    assert set(lost) == {Key(5, 1, 2)}
    trajectory = lost[Key(5, 1, 2)].trajectory
    assert (trajectory.ended, len(trajectory.turns)) == ("cut", 2)
    assert trajectory.turns[1].verdict.status is Status.UNAVAILABLE
    assert type(error).__name__ in trajectory.turns[1].verdict.message
    others = [rollout for rollout in rollouts if rollout.key != Key(5, 1, 2)]
    assert all(rollout.trajectory.ended == "budget" for rollout in others)


def test_what_the_caller_got_wrong_is_raised() -> None:
    with pytest.raises(UsageError, match="no such language"):
        run(Batches(), Failing("# 0 0 0", error=UsageError("no such language")))


def test_what_a_policy_raises_ends_the_play() -> None:
    class Broken(Batches):
        def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
            raise MemoryError("out of memory")

    class Short(Batches):
        def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
            return super().generate(requests)[1:]

    with pytest.raises(MemoryError):
        run(Broken())
    with pytest.raises(RuntimeError, match="5 completions for 6 requests"):
        run(Short())


class Dropping(Stream):
    """Answers every request but some."""

    def __init__(self, dropped: set[tuple[int, int, int]]) -> None:
        super().__init__()
        self.dropped = dropped

    async def sample(
        self, requests: Sequence[SampleRequest]
    ) -> AsyncIterator[tuple[int, Completion]]:
        await asyncio.sleep(0)
        if any(request.key[1:] in self.dropped for request in requests):
            raise PolicyFailure("the server dropped the request")
        async for found in super().sample(requests):
            yield found


places = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2))


@settings(max_examples=25, deadline=None)
@given(st.sets(places, max_size=6))
def test_policy_failure_cuts_its_trajectory_only(dropped: set[tuple[int, int, int]]) -> None:
    whole = {rollout.key: rollout for rollout in run(Stream())}
    for rollout in run(Dropping(dropped)):
        same = whole[rollout.key]
        turns = [turn for turn in range(3) if (*rollout.key[1:3], turn) in dropped]
        kept = min(turns, default=3)
        assert rollout.trajectory.turns == same.trajectory.turns[:kept]
        assert rollout.completions == same.completions[:kept]
        assert rollout.trajectory.ended == ("cut" if turns else "budget")
        assert rollout.trajectory.valid and counts(rollout) is not bool(turns)


def test_policy_failure_of_a_batch_cuts_the_batch() -> None:
    class Failing(Batches):
        def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
            if len(requests) < 6:
                raise PolicyFailure("the engine was restarted")
            return [
                completion(each, text(each, "correct" if each.key.trajectory == 1 else "wrong"))
                for each in requests
            ]

    rollouts = run(Failing(), rules=EpisodeConfig())
    assert [rollout.trajectory.ended for rollout in rollouts] == ["cut", "solved", "cut"] * 2
    assert {len(rollout.completions) for rollout in rollouts} == {1}


@settings(max_examples=25, deadline=None)
@given(st.sets(places, max_size=8))
def test_long_prompt_ends_its_trajectory_only(long: set[tuple[int, int, int]]) -> None:
    class Refusing(Batches):
        def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
            found = tuple(i for i, each in enumerate(requests) if each.key[1:] in long)
            if found:
                raise PromptTooLong("a prompt of 9 tokens does not fit", found)
            return super().generate(requests)

    whole = {rollout.key: rollout for rollout in run(Batches())}
    for rollout in run(Refusing()):
        turns = [turn for turn in range(3) if (*rollout.key[1:3], turn) in long]
        kept = min(turns, default=3)
        assert rollout.trajectory.turns == whole[rollout.key].trajectory.turns[:kept]
        assert rollout.trajectory.ended == ("cut" if turns else "budget")
        assert counts(rollout) is not bool(turns)


def test_generator_of_a_policy_is_closed_when_left() -> None:
    closed: list[Key] = []

    class Closing(Stream):
        async def sample(
            self, requests: Sequence[SampleRequest]
        ) -> AsyncIterator[tuple[int, Completion]]:
            try:
                async for found in super().sample(requests):
                    yield found
            finally:
                closed.append(requests[0].key)

    async def noted() -> list[Rollout]:
        judge = ScriptedEvaluator(ruleset="kernelbench")
        found = await play(tasks_of(5, problems(1), 2), Closing(), judge, OBSERVER, NEVER)
        assert len(closed) == 6, "not only once they are garbage"
        return found

    asyncio.run(noted())


def test_nothing_is_left_running() -> None:
    before = set(threading.enumerate())
    with pytest.raises(UsageError):
        run(Batches(), Failing("# 0 0 0", error=UsageError("no")))
    left = set(threading.enumerate()) - before
    for thread in left:  # an executor's thread may take a moment to end
        thread.join(10.0)
    assert not [thread for thread in left if thread.is_alive()]


def test_an_answer_that_was_cut_off_has_a_defect_even_if_a_kernel_is_read() -> None:
    whole, cut = run(Batches()), run(Batches(finish="length"))
    for one, other in zip(whole, cut, strict=True):
        assert one.trajectory.turns[0].reply.defects == ()
        assert other.trajectory.turns[0].reply.defects == ("cut_off",)
        assert other.trajectory.turns[0].reply.kernel is not None
        assert other.trajectory.turns[0].score.total < one.trajectory.turns[0].score.total


def test_the_same_kernel_twice_is_judged_once() -> None:
    class Same(Batches):
        def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
            return [completion(each, "<KERNEL>class ModelNew: ...</KERNEL>") for each in requests]

    evaluator = ScriptedEvaluator([verdict("wrong"), verdict("correct")], ruleset="kernelbench")
    (rollout,) = run(Same(), evaluator, tasks=tasks_of(0, problems(1), 1))
    assert len(evaluator.judged) == 1
    assert {turn.verdict.status for turn in rollout.trajectory.turns} == {Status.WRONG}


def test_seeds_follow_from_the_runs_seed_and_the_key() -> None:
    one, two, three = Batches(), Batches(), Batches()
    run(one, seed=1)
    run(two, seed=1)
    run(three, seed=2)

    def seeds(policy: Batches) -> list[int]:
        return [request.seed for batch in policy.batches for request in batch]

    assert seeds(one) == seeds(two)
    assert len(set(seeds(one)) | set(seeds(three))) == 36
    assert request_seed(1, Key(5, 0, 0, 0)) == seeds(one)[0]


@given(st.integers(), st.tuples(*[st.integers(0, 999)] * 4), st.tuples(*[st.integers(0, 999)] * 4))
def test_no_two_keys_share_a_seed(seed: int, one: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert (request_seed(seed, Key(*one)) == request_seed(seed, Key(*other))) == (one == other)
    assert 0 <= request_seed(seed, Key(*one)) < 1 << 63


def test_history_is_cut_to_the_prompts_budget() -> None:
    open_, tight = Batches(), Batches()
    run(open_, tasks=tasks_of(0, problems(1), 1))
    first = OBSERVER.tokens(open_.batches[0][0].messages)
    run(
        tight,
        tasks=tasks_of(0, problems(1), 1),
        rules=EpisodeConfig(stop_when="never", prompt_tokens=first),
    )
    told = [
        sum(len(m.content) for m in batch[0].messages)
        for batch in (open_.batches[2], tight.batches[2])
    ]
    assert told[1] < told[0]
    assert tight.batches[0][0].messages == open_.batches[0][0].messages


def test_arguments_are_checked() -> None:
    task = Task(Key(0, 0), problems(1)[0])
    with pytest.raises(UsageError, match="same key"):
        run(Batches(), tasks=[task, task])
    with pytest.raises(UsageError, match="at_once"):
        run(Stream(), at_once=0)
    with pytest.raises(UsageError, match="sample"):
        run(object())
    with pytest.raises(UsageError, match="strict"):
        run(Batches(), ScriptedEvaluator(ruleset="strict"))
    with pytest.raises(UsageError, match="cuda"):
        run(Batches(), ScriptedEvaluator(ruleset="kernelbench", device="cuda:0"))
