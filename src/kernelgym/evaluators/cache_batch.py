"""Passes a batch of jobs through the cache of verdicts.

Contract:

- cached verdicts are yielded at once, the others as they are judged;
- a kernel that occurs twice in the batch, or that another batch or thread of this process is
  judging, is not judged again: its jobs wait for that verdict;
- a thread of the batch takes the jobs and calls the evaluator, so that a job never waits for the
  verdict of another. A bounded queue keeps this thread from running far ahead of the caller.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kernelgym.types import Job, Kernel, Verdict

__all__ = ["Batch", "Flight", "Flights"]

_AHEAD = 64
_LOOK_S = 0.1  # between two checks whether the caller still wants verdicts

_Results = queue.Queue[tuple[int, Verdict] | BaseException | None]

Flight = concurrent.futures.Future[Verdict | None]
"""A verdict being judged; None as its result means that each waiting job must be judged."""


class Flights:
    """The verdicts that this process is judging, by key.

    They keep a process from judging a kernel twice at the same time.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self._by_key: dict[str, Flight] = {}

    def join(self, key: str) -> tuple[Flight, bool]:
        """Return the key's flight, and True if the caller must land it."""
        if self._process != os.getpid():
            self._begin()  # a forked child lacks the threads that would land its parent's flights
        with self._lock:
            if (known := self._by_key.get(key)) is not None:
                return known, False
            flight = self._by_key[key] = Flight()
            return flight, True

    def land(self, key: str, verdict: Verdict | None) -> None:
        """End a flight that the caller has begun.

        A verdict that is cached must be in the store before, or a new caller would judge it again.
        """
        with self._lock:
            flight = self._by_key.pop(key)
        flight.set_result(verdict)


@dataclass(slots=True, eq=False)
class _Asked:
    """A kernel without a verdict, and the jobs waiting for it."""

    job: Job
    key: str
    wanted_by: list[int]
    lands: bool = False
    """True if this batch has begun the key's flight."""
    started: float = field(default_factory=time.monotonic)


class Batch:
    """One pass over some jobs.

    Args:
        jobs: The jobs.
        flights: The verdicts that this process is judging.
        evaluate_iter: Judges the kernels without a cached verdict.
        key: Returns the key of a job's verdict.
        find: Returns the cached verdict of a key, or None.
        given: Returns a cached or shared verdict as that of a caller that asked at the given time.
        judged: Called with every new verdict, to cache it.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        flights: Flights,
        *,
        evaluate_iter: Callable[[Iterable[Job]], Iterator[tuple[int, Verdict]]],
        key: Callable[[Job], str],
        find: Callable[[str], Verdict | None],
        given: Callable[[Verdict, float], Verdict],
        judged: Callable[[str, Kernel, Verdict], None],
    ) -> None:
        self._jobs, self._flights, self._evaluate_iter = jobs, flights, evaluate_iter
        self._key, self._find, self._given, self._judged = key, find, given, judged
        self._results: _Results = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self._asked: dict[str, _Asked] = {}  # by key: kernels of this batch without a verdict
        self._waiting: list[tuple[_Asked, Flight]] = []  # those that another batch is judging
        self._ready: collections.deque[_Asked] = collections.deque()  # those left to this batch

    def stream(self) -> Iterator[tuple[int, Verdict]]:
        """Yield (index of the job, verdict) in order of completion."""
        threading.Thread(target=self._run, daemon=True).start()
        try:
            while (result := self._results.get()) is not None:
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            self._stopped.set()

    def _run(self) -> None:
        try:
            self._judge(self._first_pass())
            while (self._ready or self._waiting) and not self._stopped.is_set():
                if self._ready:
                    self._judge(self._from_ready())
                else:
                    self._wait_for_others()
        except BaseException as error:
            self._put(error)
        else:
            self._put(None)
        finally:
            for asked in self._asked.values():
                self._land(asked, None)

    def _first_pass(self) -> Iterator[_Asked]:
        """Go through the jobs; yield the kernels that this batch must judge."""
        for index, job in enumerate(self._jobs):
            yield from self._from_ready()
            if self._stopped.is_set():
                return
            asked = _Asked(job, self._key(job), [index])
            if (known := self._asked.get(asked.key)) is not None:
                known.wanted_by.append(index)
                continue
            flight, asked.lands = self._flights.join(asked.key)
            self._asked[asked.key] = asked
            if not asked.lands:
                self._waiting.append((asked, flight))
            elif (kept := self._find(asked.key)) is not None:
                self._share(asked, kept)
            else:
                yield asked

    def _from_ready(self) -> Iterator[_Asked]:
        while self._ready:
            yield self._ready.popleft()

    def _judge(self, asked: Iterator[_Asked]) -> None:
        """Judge kernels; after each verdict, take those that others have judged."""
        given_away: list[_Asked] = []

        def jobs() -> Iterator[Job]:
            for each in asked:
                given_away.append(each)
                yield each.job

        for place, verdict in self._evaluate_iter(jobs()):
            self._settle(given_away[place], verdict)
            self._look_at_others()
            if self._stopped.is_set():
                return

    def _settle(self, asked: _Asked, verdict: Verdict) -> None:
        self._judged(asked.key, asked.job.kernel, verdict)
        first, *others = asked.wanted_by
        self._put((first, verdict))
        asked.wanted_by = others
        self._share(asked, verdict if verdict.valid else None)

    def _wait_for_others(self) -> None:
        flights = [flight for _, flight in self._waiting]
        first = concurrent.futures.FIRST_COMPLETED
        concurrent.futures.wait(flights, _LOOK_S, return_when=first)
        self._look_at_others()

    def _look_at_others(self) -> None:
        """Take the verdicts of others, and kernels left without one."""
        landed = [each for each in self._waiting if each[1].done()]
        self._waiting = [each for each in self._waiting if each not in landed]
        for asked, flight in landed:
            if (verdict := flight.result()) is None:
                self._ready.append(asked)
            else:
                self._share(asked, verdict)

    def _share(self, asked: _Asked, verdict: Verdict | None) -> None:
        """Give a verdict to all waiting jobs; None: judge each alone."""
        if self._asked.get(asked.key) is asked:
            del self._asked[asked.key]
        self._land(asked, verdict)
        for index in asked.wanted_by:
            if verdict is None:
                self._ready.append(_Asked(asked.job, asked.key, [index]))
            else:
                self._put((index, self._given(verdict, asked.started)))

    def _land(self, asked: _Asked, verdict: Verdict | None) -> None:
        if asked.lands:
            asked.lands = False
            self._flights.land(asked.key, verdict)

    def _put(self, result: tuple[int, Verdict] | BaseException | None) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._results.put(result, timeout=0.1)
                return
