"""The core for many jobs: jobs go in, verdicts come out as futures.

A `Dispatcher` judges on slots, one thread each while jobs wait. Slots may be added and removed, as
machines come and go. It uses threads and no event loop, since judging blocks on sockets and
environments call from plain code.

Contract:

- a slot that becomes free takes a job of the problem that it judged last, since its worker still
  holds that problem's reference; else one of a problem that no slot has, else one that a slot of
  the same device has. A job that was passed over `_PATIENCE` times goes first;
- cancelling a future takes its job back if judging has not begun, and affects no other job;
- an error that judging raises reaches the job's own future, and no caller is left waiting;
- a job whose slot is lost (`SlotLost`) waits again, before all others, and is given up after
  `MOST_LOST` slots;
- a thread ends when no job waits, so that an evaluator that is never closed leaves none behind.

`as_they_come` feeds jobs from an iterable, a bounded number ahead of the caller. Not covered:
keeping verdicts and sharing one among callers (`kernelgym.evaluators.kept`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from kernelgym.errors import JudgeError
from kernelgym.types import Job, Verdict

MOST_LOST = 8
"""Number of slots that may be lost with one job before it is given up."""
_PATIENCE = 64
_GATHER_S = 0.005  # for an idle slot: jobs that are submitted together are then all there
_AHEAD = 64  # jobs in flight for one caller, at the least: enough to put problems together


class SlotLost(Exception):
    """Raised by the function that judges for a dispatcher: another slot has to judge the job.

    Args:
        verdict: Verdict of the job if it has lost too many slots; None if judging had not begun, so
            that the job has lost none.
    """

    def __init__(self, verdict: Verdict | None = None) -> None:
        super().__init__(verdict.message if verdict is not None else "the slot is gone")
        self.verdict = verdict


@dataclass(slots=True, eq=False)
class _Waiting:
    job: Job
    seed: str
    verdict: Future[Verdict] = field(default_factory=Future)
    passed_over: int = 0
    has_begun: bool = False
    lost: int = 0
    """Number of slots that were lost while they judged the job."""

    def begin(self) -> bool:
        """Mark the job as begun; return False if it was cancelled before."""
        self.has_begun = self.has_begun or self.verdict.set_running_or_notify_cancel()
        return self.has_begun


@dataclass(slots=True, eq=False)
class _Slot:
    number: int
    device: str
    problem: str = ""
    """Digest of the problem that the slot judges, or judged last."""
    busy: bool = False


class Dispatcher:
    """Judges jobs on slots.

    Args:
        judge: Judges one job and returns its verdict; called with the job, its seed and the
            number of the slot, from several threads.
        slots: Name of the device of each slot that is there from the start; they are numbered
            from 0.
        by_problem: Whether slots choose by problem, as above; if False, jobs are taken in the order
            in which they were submitted.
    """

    def __init__(
        self,
        judge: Callable[[Job, str, int], Verdict],
        slots: Sequence[str] = ("",),
        *,
        by_problem: bool = False,
    ) -> None:
        self._judge, self._devices, self._by_problem = judge, tuple(slots), by_problem
        self._begin()

    def _begin(self) -> None:
        """Reset to no jobs. A forked child calls this again: it lacks its parent's threads."""
        self._process, self._lock = os.getpid(), threading.Lock()
        self._slots = [_Slot(number, device) for number, device in enumerate(self._devices)]
        self._next = len(self._slots)
        self._waiting: list[_Waiting] = []

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of a job's verdict.

        Args:
            job: The job.
            seed: Seed that `judge` is given.
        """
        if self._process != os.getpid():
            self._begin()
        waiting = _Waiting(job, seed)
        with self._lock:
            self._waiting.append(waiting)
            self._wake()
        return waiting.verdict

    def add_slot(self, device: str) -> int:
        """Add a slot on a device and return its number, which no other slot ever has."""
        with self._lock:
            slot = _Slot(self._next, device)
            self._next += 1
            self._slots.append(slot)
            if self._waiting:
                self._wake()
        return slot.number

    def remove_slot(self, number: int) -> None:
        """Give a slot no further job. A job that it judges now is not affected."""
        with self._lock:
            self._slots = [slot for slot in self._slots if slot.number != number]

    def settle_waiting(self, outcome: Verdict | BaseException) -> None:
        """Settle all jobs that wait for a slot with one verdict or error."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each.begin():
                settle(each.verdict, outcome)

    def _wake(self) -> None:
        """Start an idle slot's thread, if there is one; the caller holds the lock."""
        slot = next((slot for slot in self._slots if not slot.busy), None)
        if slot is not None:
            slot.busy = True
            threading.Thread(
                target=self._work, args=(slot,), name="kernelgym-dispatch", daemon=True
            ).start()

    def _work(self, slot: _Slot) -> None:
        """Judge jobs on one slot until none waits."""
        if self._by_problem:
            time.sleep(_GATHER_S)
        while (taken := self._take(slot)) is not None:
            if not taken.begin():
                continue
            try:
                verdict = self._judge(taken.job, taken.seed, slot.number)
            except SlotLost as lost:
                self._put_back(taken, lost)
            except BaseException as error:
                settle(taken.verdict, error)
            else:
                settle(taken.verdict, verdict)

    def _put_back(self, taken: _Waiting, lost: SlotLost) -> None:
        """Put a job back among the waiting ones, or give it up after too many lost slots."""
        taken.lost += lost.verdict is not None
        if lost.verdict is not None and taken.lost >= MOST_LOST:
            settle(taken.verdict, lost.verdict)
            return
        with self._lock:
            self._waiting.insert(0, taken)
            self._wake()

    def _take(self, slot: _Slot) -> _Waiting | None:
        """Remove and return the next job of a slot; mark the slot free if there is none."""
        with self._lock:
            if not self._waiting or slot not in self._slots:
                slot.busy = False
                return None
            place = self._choose(slot)
            for earlier in self._waiting[:place]:
                earlier.passed_over += 1
            taken = self._waiting.pop(place)
            slot.problem = taken.job.problem.digest
            return taken

    def _choose(self, slot: _Slot) -> int:
        """Return the index of the waiting job that a slot takes."""
        if not self._by_problem or self._waiting[0].passed_over >= _PATIENCE:
            return 0
        held = Counter(each.problem for each in self._slots)
        nearby = {each.problem for each in self._slots if each.device == slot.device}
        backlog = Counter(each.job.problem.digest for each in self._waiting)

        def rank(index: int) -> tuple[int, float, int]:
            problem = self._waiting[index].job.problem.digest
            if problem == slot.problem:
                return 0, 0.0, index
            if not held[problem]:
                return 1, 0.0, index
            return 2 if problem in nearby else 3, -backlog[problem] / held[problem], index

        return min(range(len(self._waiting)), key=rank)


def _telling(done: queue.SimpleQueue[int], index: int) -> Callable[[Future[Verdict]], None]:
    return lambda _: done.put(index)


def settle(verdict: Future[Verdict], outcome: Verdict | BaseException) -> None:
    """Settle a future with its verdict or error, unless it was cancelled."""
    if verdict.cancelled():
        return
    if isinstance(
        outcome, StopIteration | concurrent.futures.CancelledError | asyncio.CancelledError
    ):
        # An awaited future does not accept these exceptions: the caller would wait for ever.
        error = JudgeError(f"the evaluator raised {type(outcome).__name__}")
        error.__cause__ = outcome
        outcome = error
    if isinstance(outcome, BaseException):
        verdict.set_exception(outcome)
    else:
        verdict.set_result(outcome)


def as_they_come(
    submit: Callable[[Job], Future[Verdict]], jobs: Iterable[Job], workers: int = 1
) -> Iterator[tuple[int, Verdict]]:
    """Yield (index of the job, verdict) in the order in which verdicts come.

    Args:
        submit: Function that returns the future of a job's verdict.
        jobs: The jobs; taken from the iterable a bounded number ahead of the verdicts.
        workers: Number of kernels that are judged at the same time.

    Raises:
        Exception: What judging a job raises. The jobs that have not begun are then taken back, as
            they are when the caller stops early.
    """
    source = enumerate(jobs)
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    flying: dict[int, Future[Verdict]] = {}
    ahead = max(_AHEAD, 4 * workers)
    exhausted = False
    try:
        while not exhausted or flying:
            while not exhausted and len(flying) < ahead and done.empty():
                try:
                    index, job = next(source)
                except StopIteration:
                    exhausted = True
                    break
                flying[index] = submit(job)
                flying[index].add_done_callback(_telling(done, index))
            if flying:
                index = done.get()
                yield index, flying.pop(index).result()
    finally:
        for future in flying.values():
            future.cancel()
