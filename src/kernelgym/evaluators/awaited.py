"""`AwaitedEvaluator`: makes any evaluator awaitable.

Contract:

- kernels that are awaited at the same time are judged together, in one `evaluate_iter`, and each
  caller goes on as soon as its own verdict is there;
- an error that the evaluator raises for a kernel reaches only the caller that awaits this kernel;
  no caller is left waiting;
- cancelling one caller does not affect another. Its kernel is not judged if that has not begun;
- it never closes the evaluator it was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from kernelgym.episodes.playing import side_by_side
from kernelgym.errors import JudgeError, UsageError
from kernelgym.types import (
    Evaluator,
    Finding,
    Job,
    Kernel,
    Problem,
    Severity,
    Status,
    Verdict,
)

__all__ = ["AwaitedEvaluator"]


@dataclass(frozen=True, slots=True)
class _Waiting:
    job: Job
    seed: str
    verdict: Future[Verdict]


class AwaitedEvaluator:
    """An awaitable evaluator that judges kernels awaited at the same time together.

    Args:
        evaluator: The evaluator that judges. It is used from several threads and never closed here.
        most: Largest number of kernels in a batch.
        batches: Largest number of batches judged at the same time.

    Raises:
        UsageError: If `most` or `batches` is less than 1.
    """

    def __init__(self, evaluator: Evaluator, *, most: int = 256, batches: int = 8) -> None:
        if most < 1 or batches < 1:
            raise UsageError(f"most and batches must be at least 1, got {most} and {batches}")
        self.evaluator = evaluator
        self._most, self._batches = most, batches
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._running = 0
        self._closed = False
        self._threads = ThreadPoolExecutor(batches, thread_name_prefix="kernelgym-await")

    async def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Judge one kernel.

        Args:
            problem: The problem.
            kernel: The kernel.
            seed: With one, the kernel is judged in a batch of its own, since batches take no seeds.

        Raises:
            UsageError: If this is closed.
            Exception: Whatever the evaluator raises for this kernel.
        """
        waiting = _Waiting(Job(problem, kernel), seed, Future())
        with self._lock:
            if self._closed:
                raise UsageError("this AwaitedEvaluator is closed; make another one")
            self._waiting.append(waiting)
        # Later, so that all tasks that are ready now can add their kernels to the batch.
        asyncio.get_running_loop().call_soon(self._dispatch)
        return await asyncio.wrap_future(waiting.verdict)

    async def evaluate_or_excuse(self, problem: Problem, kernel: Kernel) -> Verdict:
        """Judge one kernel; return `unavailable` if the evaluator fails on it.

        Raises:
            UsageError: If the evaluator raises it: it would for every kernel.
        """
        try:
            return await self.evaluate(problem, kernel)
        except UsageError:
            raise
        except Exception as error:
            message = f"the evaluator raised {type(error).__name__}: {error}"
        return Verdict(
            Status.UNAVAILABLE,
            message=message,
            findings=(Finding("evaluator_failed", message, Severity.INFO),),
            device=self.evaluator.device,
            ruleset=self.evaluator.ruleset.label,
        )

    async def evaluate_many(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Judge many kernels; return verdicts in the order of the jobs."""
        return await side_by_side(jobs, lambda job: self.evaluate(job.problem, job.kernel))

    async def close(self) -> None:
        """Wait for kernels being judged, and fail those not yet begun.

        The wrapped evaluator stays open.
        """
        with self._lock:
            self._closed = True
            left, self._waiting = self._waiting, []
        _give_up(left)
        await asyncio.to_thread(self._threads.shutdown)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _dispatch(self) -> None:
        """Start as many batches as are allowed at the same time."""
        while True:
            with self._lock:
                if not self._waiting or self._running >= self._batches:
                    return
                batch = self._take()
                self._running += 1
            try:
                self._threads.submit(self._judge, batch)
            except RuntimeError:  # another thread has closed this evaluator
                _give_up(batch)
                return

    def _judge(self, batch: Sequence[_Waiting]) -> None:
        """Judge a batch, then the kernels that arrived meanwhile."""
        while batch:
            # From here on, cancelling a caller no longer keeps its kernel from being judged.
            kept = [each for each in batch if each.verdict.set_running_or_notify_cancel()]
            try:
                self._judge_together(kept)
            except BaseException as error:
                for waiting in kept:
                    _settle(waiting, error)
            with self._lock:
                batch = self._take()
                self._running -= not batch

    def _take(self) -> list[_Waiting]:
        """Remove and return the next batch; called with the lock held."""
        seeded = (index for index, each in enumerate(self._waiting[: self._most]) if each.seed)
        size = max(1, next(seeded, self._most))
        batch, self._waiting = self._waiting[:size], self._waiting[size:]
        return batch

    def _judge_together(self, batch: Sequence[_Waiting]) -> None:
        if len(batch) > 1:
            # The kernels without a verdict are judged one by one below, so that an error reaches
            # only the caller whose kernel causes it.
            with contextlib.suppress(Exception):
                for index, verdict in self.evaluator.evaluate_iter([each.job for each in batch]):
                    _settle(batch[index], verdict)
        for waiting in batch:
            if not waiting.verdict.done():
                try:
                    job, seed = waiting.job, waiting.seed
                    _settle(waiting, self.evaluator.evaluate(job.problem, job.kernel, seed=seed))
                except Exception as error:
                    _settle(waiting, error)


def _settle(waiting: _Waiting, outcome: Verdict | BaseException) -> None:
    """Give a caller its verdict or error, unless it has one."""
    if waiting.verdict.done():
        return
    if isinstance(outcome, StopIteration | CancelledError | asyncio.CancelledError):
        # A future does not accept these exceptions: the caller would wait for ever.
        error = JudgeError(f"the evaluator raised {type(outcome).__name__}")
        error.__cause__ = outcome
        outcome = error
    if isinstance(outcome, BaseException):
        waiting.verdict.set_exception(outcome)
    else:
        waiting.verdict.set_result(outcome)


def _give_up(left: Iterable[_Waiting]) -> None:
    for waiting in left:
        if waiting.verdict.set_running_or_notify_cancel():
            _settle(waiting, JudgeError("the evaluator was closed before this kernel was judged"))
