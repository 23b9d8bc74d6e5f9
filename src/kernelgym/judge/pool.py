"""The pool of worker processes on one or several devices.

Contract:

- a worker serves one caller at a time;
- a worker is started when it is first needed, and replaced after a failure;
- callers are spread evenly over the devices. Of equally busy devices, one with an idle worker goes
  first, since starting a worker takes seconds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kernelgym.errors import UsageError
from kernelgym.judge.outcome import JudgeFailure
from kernelgym.judge.retries import RETRIES, Reason
from kernelgym.judge.untrusted.protocol import ProtocolError
from kernelgym.judge.worker_handle import WorkerProcess
from kernelgym.types import Verdict

__all__ = ["WORKER_LOST", "Pool"]

WORKER_LOST = (OSError, EOFError, ProtocolError, ValueError, KeyError)
"""Raised by a request to a worker that is gone or sends an unreadable answer."""

_Answer = TypeVar("_Answer")


@dataclass(eq=False, slots=True)
class _Place:
    """A slot for one worker on one device."""

    device: str
    worker: WorkerProcess | None = None
    busy: bool = False


class Pool:
    """A fixed number of workers on each device.

    Args:
        devices: The devices.
        each: Number of workers on each device.
        start: Starts a worker on a device.
    """

    def __init__(
        self, devices: Sequence[str], each: int, start: Callable[[str], WorkerProcess]
    ) -> None:
        self._devices, self._each, self._start = tuple(devices), each, start
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Start with no worker running.

        A forked child calls this again: the running workers belong to its parent.
        """
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._places = [_Place(device) for _ in range(self._each) for device in self._devices]

    def lend(
        self,
        ask: Callable[[WorkerProcess], _Answer],
        trusts: Callable[[_Answer], bool] = lambda _: True,
    ) -> _Answer:
        """Call `ask` with a free worker; replace the worker if it fails.

        Args:
            ask: Sends the worker a request and returns its answer.
            trusts: Returns True if the worker can be used again after this answer.

        Raises:
            UsageError: As `ask` raises it; the worker stays in use.
            ValueError: If the pool is closed.
            Exception: Whatever else `ask`, or starting a worker, raises.
        """
        if self._pid != os.getpid():
            self._begin()
        place = self._take()
        usable = False
        try:
            if place.worker is None:
                self._fill(place)
            assert place.worker is not None
            answer = ask(place.worker)
            usable = trusts(answer)
            return answer
        except UsageError:
            usable = True
            raise
        finally:
            # Also after an interrupt: the worker's answer would be read as that to the next job.
            worker = place.worker
            if worker is not None and not usable:
                worker.close()
            with self._changed:
                if not usable:
                    place.worker = None
                place.busy = False
                self._changed.notify()

    def judge(
        self, ask: Callable[[WorkerProcess], Verdict | JudgeFailure], attempts: int = 0
    ) -> Verdict | list[JudgeFailure]:
        """Judge a kernel with a worker; after a failure, with another.

        Args:
            ask: Has one worker judge the kernel.
            attempts: Most attempts; if 0, as many as the table of retries says.

        Returns:
            The verdict, or one failure for each attempt.

        Raises:
            UsageError: As `ask` raises it.
        """
        failures: list[JudgeFailure] = []
        for _ in range(attempts or RETRIES[Reason.JUDGE_FAILED].attempts):
            try:
                answer = self.lend(ask, lambda answer: isinstance(answer, Verdict))
            except UsageError:
                raise
            except WORKER_LOST as error:
                message = f"the worker failed: {type(error).__name__}: {error}"
                answer = JudgeFailure(message, "worker_lost")
            if isinstance(answer, Verdict):
                return answer
            failures.append(answer)
        return failures

    def _take(self) -> _Place:
        with self._changed:
            while not (free := [place for place in self._places if not place.busy]):
                self._changed.wait()
            busy = [place.device for place in self._places if place.busy]
            place = min(free, key=lambda p: (busy.count(p.device), p.worker is None))
            place.busy = True
            return place

    def _fill(self, place: _Place) -> None:
        self._refuse_if_closed()
        worker = self._start(place.device)
        try:
            # The pool may have been closed while the worker started.
            self._refuse_if_closed(place, worker)
        except ValueError:
            worker.close()
            raise

    def _refuse_if_closed(
        self, place: _Place | None = None, worker: WorkerProcess | None = None
    ) -> None:
        with self._changed:
            if self._closed:
                raise ValueError("this evaluator is closed")
            if place is not None:
                place.worker = worker

    @property
    def dismissed(self) -> bool:
        """Whether the pool is closed: it starts no more workers."""
        return self._closed

    def dismiss(self) -> None:
        """Close the pool: end all workers, busy or not, and their processes."""
        with self._changed:
            self._closed = True
            workers = [place.worker for place in self._places if place.worker is not None]
        if self._pid == os.getpid():
            for worker in workers:
                worker.close()
