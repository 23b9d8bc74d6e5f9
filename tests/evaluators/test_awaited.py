"""The awaitable evaluator: what is judged together, what fails, and who is left waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from kernelgym.errors import JudgeError, UsageError
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator, verdict
from kernelgym.types import Job, Kernel, Problem, Status, Verdict
from support.batches import Batches, kernel


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


def test_what_comes_to_busy_batches_is_judged_later() -> None:
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
def test_errors_futures_refuse_leave_nobody_waiting(error) -> None:
    found = run_with(Faulty(error), kernel("timeout", 1), kernel("wrong", 2))
    assert isinstance(found[0], JudgeError) and found[0].__cause__ is error
    assert isinstance(found[1], JudgeError) or found[1].status == "wrong"


@pytest.mark.parametrize("kind", [Forgetful, Misnumbering])
def test_lost_jobs_leave_nobody_waiting(kind) -> None:
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


def test_closing_ends_waiting_and_keeps_the_evaluator() -> None:
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
