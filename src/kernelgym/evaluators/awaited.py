"""`AwaitedEvaluator`: an evaluator for code with an event loop.

Contract:

- kernels that are awaited at the same time are judged side by side, and each caller goes on as soon
  as its own verdict is there;
- an error that the evaluator raises for a kernel reaches only the caller that awaits this kernel;
- cancelling one caller does not affect another. Its kernel is not judged if that has not begun;
- it never closes the evaluator it was given.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Self

from kernelgym.errors import JudgeError, UsageError
from kernelgym.types import Evaluator, Job, Kernel, Problem, Verdict
from kernelgym.verdict import unavailable


class AwaitedEvaluator:
    """An awaitable evaluator.

    Args:
        evaluator: The evaluator that judges. It is never closed here.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._flying: set[concurrent.futures.Future[Verdict]] = set()
        self._closed = threading.Event()

    async def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Judge one kernel and return its verdict.

        Args:
            problem: The problem.
            kernel: The kernel.
            seed: Seed of inputs and weights, as for `kernelgym.types.Evaluator.evaluate`.

        Raises:
            UsageError: If this object is closed.
            JudgeError: If it is closed before judging has begun.
            Exception: Whatever the evaluator raises for this kernel.
        """
        if self._closed.is_set():
            raise UsageError("this AwaitedEvaluator is closed; make another one")
        future = self.evaluator.submit(Job(problem, kernel), seed)
        self._flying.add(future)
        future.add_done_callback(self._flying.discard)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._closed.is_set() or task is None or task.cancelling():
                raise
            message = "the evaluator was closed before this kernel was judged"
            raise JudgeError(message) from None

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
        can = self.evaluator.capabilities
        return unavailable(message, "evaluator_failed", can.device, can.ruleset.label)

    async def close(self) -> None:
        """Take back the kernels that no worker has begun, and wait for the others.

        The wrapped evaluator stays open.
        """
        self._closed.set()
        running = [future for future in list(self._flying) if not future.cancel()]
        if running:
            await asyncio.to_thread(concurrent.futures.wait, running)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
