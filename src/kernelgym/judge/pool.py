"""The pool of worker processes on one or several devices.

Contract:

- a worker serves one caller at a time;
- a worker is started when it is first needed, and replaced after a failure;
- callers are spread evenly over the devices. Of equally busy devices, one with an idle worker goes
  first, since starting a worker takes seconds;
- a second attempt goes to another device, if one is in service: a broken device fails fast, so it
  is the least busy, and would be given the kernels that it has just failed;
- with several devices, one that fails again and again is taken out of service, probed, and taken
  back when it computes (`kernelgym.judge.device_health`).

Does not cover a device that hangs within its workers' deadline: the kernels that were given to it
wait for that deadline before they are moved.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kernelgym.capabilities import DeviceHealth
from kernelgym.errors import JudgeError, UsageError
from kernelgym.judge.device_health import DeviceRecord
from kernelgym.judge.outcome import JudgeFailure, moved_verdict
from kernelgym.judge.retries import Failure, attempts_at
from kernelgym.judge.untrusted.protocol import ProtocolError
from kernelgym.judge.worker_handle import WorkerProcess
from kernelgym.types import Verdict

WORKER_LOST = (OSError, EOFError, ProtocolError, ValueError, KeyError)
"""Exceptions of a request to a worker that is gone or sends an unreadable answer."""

_Answer = TypeVar("_Answer")
_Ask = Callable[[WorkerProcess], Verdict | JudgeFailure]
_ATTEMPTS = attempts_at(Failure.JUDGE)
_LOOK_S = 1.0  # between two looks at a probe, while no device is in service


class NoDevice(JudgeError):
    """No device is in service, and none is being probed or about to be."""


@dataclass(eq=False, slots=True)
class _Place:
    """Place for one worker of the pool, on one device."""

    device: str
    worker: WorkerProcess | None = None
    busy: bool = False


class WorkerPool:
    """A fixed number of workers on each device.

    Args:
        devices: The devices.
        each: Number of workers on each device.
        start: Starts a worker on a device.
        probe: Function that has a worker judge a kernel that is correct, to find out whether its
            device computes. Without it, or with one device, no device is taken out of service.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self,
        devices: Sequence[str],
        each: int,
        start: Callable[[str], WorkerProcess],
        probe: _Ask | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._devices, self._each, self._start = tuple(devices), each, start
        self._probe, self._clock = probe if len(self._devices) > 1 else None, clock
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Reset the pool to no running workers.

        A forked child calls this again: the running workers belong to its parent.
        """
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._places = [_Place(device) for _ in range(self._each) for device in self._devices]
        self._records = {device: DeviceRecord(device) for device in self._devices}
        self._probing: set[WorkerProcess] = set()

    def places(self) -> tuple[str, ...]:
        """Return the device of each place, by the place's number."""
        return tuple(place.device for place in self._places)

    def health(self) -> tuple[DeviceHealth, ...]:
        """Return each device's counts."""
        with self._changed:
            return tuple(record.health() for record in self._records.values())

    def lend(
        self,
        ask: Callable[[WorkerProcess], _Answer],
        *,
        counts: bool = False,
    ) -> _Answer:
        """Call `ask` with a free worker; replace the worker if it fails.

        Args:
            ask: Sends the worker a request and returns its answer.
            counts: Whether an answer and a lost worker count for the device as in `judge`.

        Raises:
            UsageError: As `ask` raises it; the worker stays in use.
            ValueError: If the pool is closed.
            Exception: Whatever else `ask`, or starting a worker, raises.
        """
        place = self._take()
        try:
            answer = self._ask(place, ask, lambda _: True)
        except UsageError:
            raise
        except WORKER_LOST as error:
            if counts:
                self._count(place.device, _said(error), isinstance(error, TimeoutError))
            raise
        if counts and not isinstance(answer, JudgeFailure):
            self._count(place.device, None)
        return answer

    def _ask(
        self,
        place: _Place,
        ask: Callable[[WorkerProcess], _Answer],
        trusts: Callable[[_Answer], bool],
    ) -> _Answer:
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
                self._changed.notify_all()

    def judge(
        self, ask: _Ask, attempts: int = _ATTEMPTS, only: str = "", place: int | None = None
    ) -> Verdict | list[JudgeFailure]:
        """Judge a kernel; after a failure, judge it on another device.

        Args:
            ask: Function that has one worker judge the kernel.
            attempts: Most attempts.
            only: The device to judge on; any if empty.
            place: Number of the place that the first attempt is made on if it is free.

        Returns:
            The verdict, or one failure for each attempt.

        Raises:
            UsageError: As `ask` raises it.
        """
        failures: list[JudgeFailure] = []
        for _ in range(attempts):
            tried = {failure.device for failure in failures}
            try:
                taken = self._take(only, tried, place)
            except NoDevice as error:
                failures.append(JudgeFailure(str(error), "no_device"))
                break
            except ValueError as error:  # closed
                failures.append(JudgeFailure(str(error)))
                break
            answer = self._attempt(taken, ask)
            if isinstance(answer, Verdict):
                with self._changed:
                    for device in tried - {taken.device}:
                        self._records[device].moved += 1
                return moved_verdict(answer, failures, taken.device)
            failures.append(answer)
        return failures

    def _attempt(self, place: _Place, ask: _Ask) -> Verdict | JudgeFailure:
        """Make one attempt at a verdict, and count its success or failure for the device."""
        device, overran = place.device, False
        try:
            answer = self._ask(place, ask, lambda answer: isinstance(answer, Verdict))
        except UsageError:
            raise
        except WORKER_LOST as error:
            overran = isinstance(error, TimeoutError)
            answer = JudgeFailure(_said(error), "worker_lost")
        if isinstance(answer, JudgeFailure):
            answer = JudgeFailure(answer.message, answer.code, device)
        self._count(device, None if isinstance(answer, Verdict) else answer.message, overran)
        return answer

    def _count(self, device: str, failure: str | None, overran: bool = False) -> None:
        """Count an attempt for its device; `failure` is None after a verdict."""
        with self._changed:
            record = self._records[device]
            if failure is None:
                record.give()
            elif self._probe is None:
                record.lost += 1
            elif not self._closed:
                record.lose(failure, self._clock(), overran)
            self._start_probes()
            self._changed.notify_all()

    def forgive(self, devices: Collection[str]) -> None:
        """Take back one lost worker from each device's count, since the kernel was the cause."""
        with self._changed:
            for device in devices:
                self._records[device].forgive()

    def _take(
        self, only: str = "", avoid: Collection[str] = (), wanted: int | None = None
    ) -> _Place:
        """Return a place on a device in service, once one is free.

        Args:
            only: The device to take; any if empty.
            avoid: Devices not to take while another is in service.
            wanted: Number of the place to take if it is among the free ones.

        Raises:
            NoDevice: If no device is in service, or that one is not.
            ValueError: If the pool is closed.
        """
        if self._pid != os.getpid():
            self._begin()
        with self._changed:
            while True:
                self._start_probes()
                chosen = [r for r in self._records.values() if r.device == only or not only]
                serving = [record.device for record in chosen if record.in_service]
                devices = set(serving) - set(avoid) or set(serving)
                free = [p for p in self._places if p.device in devices and not p.busy]
                if free or self._closed:
                    break
                now = self._clock()
                if not serving and not any(record.may_return(now) for record in chosen):
                    known = "; ".join(f"{record.device}: {record.reason}" for record in chosen)
                    raise NoDevice(f"no device is in service: {known}")
                self._changed.wait(None if serving else _LOOK_S)
            self._refuse_if_closed()
            busy = [place.device for place in self._places if place.busy]
            asked_for = None if wanted is None else self._places[wanted]
            place = min(
                free,
                key=lambda p: (p is not asked_for, busy.count(p.device), p.worker is None),
            )
            place.busy = True
            return place

    def _start_probes(self) -> None:
        """Start the due probes of devices that are out of service; the caller holds the lock."""
        now = self._clock()
        for record in self._records.values():
            if not self._closed and record.needs_probe(now):
                record.begin_probe(now)
                threading.Thread(target=self._probe_once, args=(record,), daemon=True).start()

    def _probe_once(self, record: DeviceRecord) -> None:
        """Probe a device with a new worker, and note the result."""
        failure = ""
        try:
            answer = self._probed(record.device)
            if not isinstance(answer, Verdict) or not answer.correct:
                failure = answer.message or "it computes a small sum wrong"
        except Exception as error:  # whatever it is, the device is not taken back for it
            failure = f"{type(error).__name__}: {error}"
        with self._changed:
            record.end_probe(failure, self._clock())
            self._changed.notify_all()

    def _probed(self, device: str) -> Verdict | JudgeFailure:
        assert self._probe is not None
        worker = self._start(device)
        try:
            with self._changed:
                self._refuse_if_closed()
                self._probing.add(worker)
            return self._probe(worker)
        finally:
            worker.close()
            with self._changed:
                self._probing.discard(worker)

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
            workers += self._probing
            self._changed.notify_all()
        if self._pid == os.getpid():
            for worker in workers:
                worker.close()


def _said(error: Exception) -> str:
    """Return the message on a worker that failed with an exception."""
    return f"the worker failed: {type(error).__name__}: {error}"
