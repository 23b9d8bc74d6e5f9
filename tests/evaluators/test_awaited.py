"""The awaitable evaluator: what fails, what is cancelled, and that no caller is left waiting."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from typing import Any

import pytest

from kernelgym.errors import JudgeError, UsageError
from kernelgym.evaluators.awaited import AwaitedEvaluator
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.types import Kernel, Problem, Status, Verdict
from support.batches import Held, kernel


async def ask(judge: AwaitedEvaluator, *kernels: Kernel) -> list[Any]:
    asked = (judge.evaluate(SAMPLE_PROBLEM, each) for each in kernels)
    return list(await asyncio.gather(*asked, return_exceptions=True))


def run_with(evaluator: Any, *kernels: Kernel) -> list[Any]:
    async def run() -> list[Any]:
        async with AwaitedEvaluator(evaluator) as judge:
            return await asyncio.wait_for(ask(judge, *kernels), 30)

    return asyncio.run(run())


async def begun(evaluator: Held) -> None:
    while not evaluator.begun.is_set():
        await asyncio.sleep(0.001)


def test_awaited_kernels_get_their_own_verdicts() -> None:
    evaluator = Held(workers=3)
    kernels = [kernel(says, i) for i, says in enumerate(["wrong", "correct 2", "timeout"] * 3)]
    found = run_with(evaluator, *kernels)
    assert [each.status for each in found] == ["wrong", "correct", "timeout"] * 3
    assert not evaluator.closed


def test_awaited_kernels_are_judged_by_their_seeds() -> None:
    evaluator = ScriptedEvaluator()
    seeds = ["", "1f", "", "ab"]

    async def run() -> list[Verdict]:
        async with AwaitedEvaluator(evaluator) as judge:
            asked = (judge.evaluate(SAMPLE_PROBLEM, kernel("wrong"), seed=seed) for seed in seeds)
            return list(await asyncio.wait_for(asyncio.gather(*asked), 30))

    assert [found.seed for found in asyncio.run(run())] == seeds
    assert evaluator.seeds == seeds


def test_event_loop_goes_on_while_kernels_are_judged() -> None:
    async def run() -> Status:
        evaluator = Held(held=True)
        async with AwaitedEvaluator(evaluator) as judge:
            task = asyncio.create_task(judge.evaluate(SAMPLE_PROBLEM, kernel("wrong")))
            await begun(evaluator)
            evaluator.go.set()  # only a loop that is not blocked gets here
            return (await asyncio.wait_for(task, 30)).status

    assert asyncio.run(run()) is Status.WRONG


class Faulty(ScriptedEvaluator):
    """Raises an error for the kernels that say timeout."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(workers=2)
        self.error = error

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        if "timeout" in kernel.source:
            raise self.error
        return super().evaluate(problem, kernel, seed=seed)


@pytest.mark.parametrize(
    "error", [RuntimeError("the judge broke"), UsageError("no such language"), SystemError("x")]
)
def test_error_reaches_only_the_caller_of_its_kernel(error: Exception) -> None:
    kernels = [kernel("wrong", 1), kernel("timeout", 2), kernel("correct", 3), kernel("timeout", 4)]
    found = run_with(Faulty(error), *kernels)
    assert found[0].status == "wrong" and found[2].status == "correct"
    assert found[1] is error and found[3] is error


@pytest.mark.parametrize(
    "error", [StopIteration(), CancelledError(), asyncio.CancelledError()], ids=repr
)
def test_errors_that_futures_refuse_become_judge_errors(error: BaseException) -> None:
    found = run_with(Faulty(error), kernel("timeout", 1), kernel("wrong", 2))
    assert isinstance(found[0], JudgeError) and found[0].__cause__ is error
    assert found[1].status == "wrong"


def test_cancelled_caller_disturbs_no_other() -> None:
    async def run() -> None:
        evaluator = Held(held=True, workers=3)
        async with AwaitedEvaluator(evaluator) as judge:
            running = [
                asyncio.create_task(judge.evaluate(SAMPLE_PROBLEM, kernel("wrong", i)))
                for i in range(3)
            ]
            while evaluator.at_once < 3:
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
        # The kernel that was being judged was judged to its end; the waiting one was taken back.
        sources = [job.kernel.source for job in evaluator.judged]
        assert any("NUMBER = 1\n" in source for source in sources)
        assert not any("NUMBER = 11\n" in source for source in sources)

    asyncio.run(run())


def test_closing_fails_waiting_callers_and_keeps_the_evaluator_open() -> None:
    async def run() -> None:
        evaluator = Held(held=True)
        judge = AwaitedEvaluator(evaluator)
        first = asyncio.create_task(judge.evaluate(SAMPLE_PROBLEM, kernel("wrong")))
        await begun(evaluator)
        left = asyncio.create_task(judge.evaluate(SAMPLE_PROBLEM, kernel("correct")))
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(judge.close())
        with pytest.raises(JudgeError, match="closed before"):
            await asyncio.wait_for(left, 30)
        evaluator.go.set()
        await asyncio.wait_for(closing, 30)
        assert (await first).status == "wrong" and not evaluator.closed
        with pytest.raises(UsageError, match="is closed"):
            await judge.evaluate(SAMPLE_PROBLEM, kernel("wrong"))

    asyncio.run(run())


def test_one_object_serves_several_event_loops() -> None:
    judge = AwaitedEvaluator(ScriptedEvaluator())
    for _ in range(2):
        (found,) = asyncio.run(ask(judge, kernel("wrong")))
        assert found.status == "wrong"
    asyncio.run(judge.close())
