"""Worker processes on one or several devices, lent to one caller at a time each.

A worker is started when it is first needed, and replaced after an answer that is no good. Free
places are filled evenly over the devices, where a worker runs already first.
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
"""What asking a worker raises if it is gone, or answers what nothing can read."""

_Answer = TypeVar("_Answer")


@dataclass(eq=False, slots=True)
class _Place:
    """Room for one worker on one device."""

    device: str
    worker: WorkerProcess | None = None
    busy: bool = False


class Pool:
    """Places for workers on devices.

    Args:
        devices: The devices.
        each: Places on each of them.
        start: Starts a worker on a device.
    """

    def __init__(
        self, devices: Sequence[str], each: int, start: Callable[[str], WorkerProcess]
    ) -> None:
        self._devices, self._each, self._start = tuple(devices), each, start
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Start with no worker running; again in a forked child, whose parent owns the others."""
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._places = [_Place(device) for _ in range(self._each) for device in self._devices]

    def lend(
        self,
        ask: Callable[[WorkerProcess], _Answer],
        trusts: Callable[[_Answer], bool] = lambda _: True,
    ) -> _Answer:
        """Ask a worker something once one is free; one whose answer is no good is replaced.

        Args:
            ask: Asks it.
            trusts: Says whether an answer leaves the worker fit for the next.

        Raises:
            UsageError: What `ask` raises of these leaves the worker fit, too.
            ValueError: If the crew was dismissed.
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
            # Also when interrupted: its answer is still to come, and would be taken for the next.
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
        """Have a kernel judged, again by another worker where the judge fails.

        Args:
            ask: Has one worker judge it.
            attempts: As many as the table of retries says if 0.

        Returns:
            The verdict, or the failures: one an attempt.

        Raises:
            UsageError: What `ask` raises of these.
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
            self._refuse_if_closed(place, worker)  # it may have been closed while it started
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
        """Whether no more workers are started."""
        return self._closed

    def dismiss(self) -> None:
        """End the workers and everything below them, those that are busy too."""
        with self._changed:
            self._closed = True
            workers = [place.worker for place in self._places if place.worker is not None]
        if self._pid == os.getpid():
            for worker in workers:
                worker.close()
