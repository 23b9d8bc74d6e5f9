"""A batch of jobs on its way through a cache of verdicts.

Kept verdicts come out at once, the others as they are judged; a kernel that occurs twice, or that
somebody else is judging at the moment, is waited for. The jobs are taken and the evaluator is
driven by a thread of the batch's own, since a job must not wait for another one's verdict; a
bounded queue keeps it from running ahead of whoever takes the verdicts.
"""

from __future__ import annotations

import collections
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kernelgym.evaluators.cache_request import Request
from kernelgym.types import Job, Kernel, Verdict

__all__ = ["Batch"]

_AHEAD = 64
_LOOK_S = 0.02  # between two looks at what others are judging
_MOST_CLAIMS = 256  # each takes a file descriptor; beyond, jobs are judged beside others

_Results = queue.Queue[tuple[int, Verdict] | BaseException | None]


@dataclass(slots=True, eq=False)
class _Asked:
    """A kernel whose verdict is on its way, and the jobs that want it."""

    job: Job
    request: Request
    wanted_by: list[int]
    started: float = field(default_factory=time.monotonic)


class Batch:
    """One pass over some jobs.

    Args:
        jobs: The jobs.
        evaluate_iter: Judges what is not kept.
        request: Asks for a job's verdict; is told whether to claim it.
        given: Makes a kept or shared verdict the asker's, who asked at that time.
        judged: Is told of every verdict that was judged.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        *,
        evaluate_iter: Callable[[Iterable[Job]], Iterator[tuple[int, Verdict]]],
        request: Callable[[Job, bool], Request],
        given: Callable[[Verdict, float], Verdict],
        judged: Callable[[Request, Kernel, Verdict], None],
    ) -> None:
        self._jobs, self._evaluate_iter = jobs, evaluate_iter
        self._request, self._given, self._judged = request, given, judged
        self._results: _Results = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self._flying: dict[str, _Asked] = {}  # by key: what this batch has asked for
        self._waiting: list[_Asked] = []  # of these, what others judge
        self._ready: collections.deque[_Asked] = collections.deque()  # what we may judge

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
                self._look_again()
                if self._ready:
                    self._judge(self._from_ready())
                else:
                    self._stopped.wait(_LOOK_S)
        except BaseException as error:
            self._put(error)
        else:
            self._put(None)
        finally:
            for asked in [*self._flying.values(), *self._ready]:
                asked.request.release()

    def _first_pass(self) -> Iterator[_Asked]:
        """Go through the jobs; yields those that are ours to judge."""
        for index, job in enumerate(self._jobs):
            yield from self._from_ready()
            if self._stopped.is_set():
                return
            started = time.monotonic()
            request = self._request(job, len(self._flying) < _MOST_CLAIMS)
            if (flying := self._flying.get(request.key)) is not None:
                flying.wanted_by.append(index)
                continue
            settled = request.advance(wait=False)
            if request.verdict is not None:
                self._put((index, self._given(request.verdict, started)))
                continue
            asked = _Asked(job, request, [index], started)
            self._flying[request.key] = asked
            if settled:
                yield asked
            else:
                self._waiting.append(asked)

    def _from_ready(self) -> Iterator[_Asked]:
        while self._ready:
            yield self._ready.popleft()

    def _judge(self, asked: Iterator[_Asked]) -> None:
        """Have all of them judged, and look after the others between two verdicts."""
        given_away: list[_Asked] = []

        def jobs() -> Iterator[Job]:
            for each in asked:
                given_away.append(each)
                yield each.job

        verdicts = self._evaluate_iter(jobs())
        for place, verdict in verdicts:
            self._settle(given_away[place], verdict)
            self._look_again()
            if self._stopped.is_set():
                return

    def _settle(self, asked: _Asked, verdict: Verdict) -> None:
        self._land(asked)
        self._judged(asked.request, asked.job.kernel, verdict)
        first, *others = asked.wanted_by
        self._put((first, verdict))
        for index in others:
            if verdict.valid:
                self._put((index, self._given(verdict, asked.started)))
            else:  # another attempt each: what failed was the judge
                alone = self._request(asked.job, False)
                self._ready.append(_Asked(asked.job, alone, [index]))

    def _look_again(self) -> None:
        """See what others have judged meanwhile, or left to us."""
        still: list[_Asked] = []
        for asked in self._waiting:
            if not asked.request.advance(wait=False):
                still.append(asked)
            elif asked.request.verdict is None:
                self._ready.append(asked)
            else:
                self._land(asked)
                for index in asked.wanted_by:
                    self._put((index, self._given(asked.request.verdict, asked.started)))
        self._waiting = still

    def _land(self, asked: _Asked) -> None:
        if self._flying.get(asked.request.key) is asked:
            del self._flying[asked.request.key]

    def _put(self, result: tuple[int, Verdict] | BaseException | None) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._results.put(result, timeout=0.1)
                return
