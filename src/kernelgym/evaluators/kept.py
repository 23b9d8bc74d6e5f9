"""`KeptVerdicts`: the base of evaluators that keep another evaluator's verdicts.

Contract:

- a kernel is looked up under its key, and judged only if no verdict is kept;
- callers that ask for a kernel while it is being judged share that verdict, if it says something
  about the kernel. After an `unavailable` or an error, which the first caller gets, the others
  have the kernel judged again;
- a verdict is kept before any caller gets it;
- a kernel that is asked for with a seed is judged, and its verdict is not kept;
- a kernel whose callers have all cancelled is not judged if that has not begun.

Subclasses say under which key, where verdicts are kept, and which of them are.
"""

from __future__ import annotations

import abc
import os
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

from kernelgym.capabilities import EvaluatorStatus
from kernelgym.evaluators.base import EvaluatorWrapper
from kernelgym.evaluators.dispatch import settle
from kernelgym.types import Evaluator, Job, Verdict


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A caller that waits for a verdict."""

    job: Job
    started: float
    """Moment at which the caller asked for the verdict, by `time.monotonic`."""
    verdict: Future[Verdict] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Flight:
    """Verdict under way: a kernel that is being judged, and the callers that wait for it."""

    asked: list[_Asked]
    judging: Future[Verdict] | None = None


class KeptVerdicts(EvaluatorWrapper):
    """Keeps the verdicts of another evaluator; several threads may use one object.

    Args:
        evaluator: The evaluator that judges what is not kept.
        owns: Whether closing this object closes `evaluator`, too.
    """

    def __init__(self, evaluator: Evaluator, *, owns: bool = False) -> None:
        super().__init__(evaluator, owns=owns)
        self._hits = self._misses = 0
        self._begin()

    def _begin(self) -> None:
        """Reset to no verdicts under way; also in a forked child, which lacks the threads."""
        self._process, self._lock = os.getpid(), threading.Lock()
        self._flights: dict[str, _Flight] = {}

    @property
    def status(self) -> EvaluatorStatus:
        """The wrapped evaluator's status, with the hits and misses of this object."""
        return self.evaluator.status.plus(self._hits, self._misses)

    @abc.abstractmethod
    def key(self, job: Job) -> str:
        """Return the key under which a job's verdict is kept."""

    @abc.abstractmethod
    def find(self, key: str) -> Verdict | None:
        """Return the verdict that is kept under a key, or None."""

    @abc.abstractmethod
    def keep(self, key: str, job: Job, verdict: Verdict) -> None:
        """Keep a new verdict, if it is one that should be kept."""

    def given(self, verdict: Verdict, started: float) -> Verdict:
        """Return a kept or shared verdict as the caller gets it, such as with this call's time.

        Args:
            verdict: The verdict.
            started: Time of the call, by `time.monotonic`.
        """
        return verdict

    def seed_of(self, job: Job) -> str:
        """Return the seed with which a job without one is judged; empty to leave it out."""
        return ""

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of the kept verdict, or of one that is judged now."""
        if seed:
            return self.evaluator.submit(job, seed)
        asked = _Asked(job, time.monotonic())
        self._ask(asked)
        return asked.verdict

    def _ask(self, asked: _Asked) -> None:
        """Add a caller to those that wait for a kernel's verdict; the first has it judged."""
        if self._process != os.getpid():
            self._begin()
        key = self.key(asked.job)
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None:
                flight.asked.append(asked)
            else:
                self._flights[key] = begun = _Flight([asked])
        if flight is None:
            self._judge(key, begun)
        asked.verdict.add_done_callback(lambda verdict: self._leave(key, verdict))

    def _judge(self, key: str, flight: _Flight) -> None:
        """Settle the callers of a kernel with its kept verdict, or once it is judged."""
        job = flight.asked[0].job
        try:
            if (kept := self.find(key)) is not None:
                self._land(key, kept, is_new=False)
                return
            judging = self.evaluator.submit(job, self.seed_of(job))
        except BaseException as error:
            self._fail(key, error)
            return
        with self._lock:
            flight.judging = judging
        judging.add_done_callback(lambda judged: self._judged(key, job, judged))

    def _judged(self, key: str, job: Job, judged: Future[Verdict]) -> None:
        """Settle the callers of a kernel that was judged."""
        if judged.cancelled():
            self._again(self._end(key))
            return
        try:
            verdict = judged.result()
            self.keep(key, job, verdict)
        except BaseException as error:
            self._fail(key, error)
        else:
            self._land(key, verdict, is_new=True)

    def _land(self, key: str, verdict: Verdict, *, is_new: bool) -> None:
        """Settle the callers that wait for a kernel with its verdict."""
        asked = self._end(key)
        shares = verdict.valid or not is_new
        with self._lock:
            self._misses += is_new
            self._hits += (len(asked) if shares else 1) - is_new
        for each in asked[:1] if is_new else []:
            _give(each, verdict)
        for each in asked[is_new:] if shares else []:
            _give(each, self.given(verdict, each.started))
        if not shares:
            self._again(asked[1:])

    def _fail(self, key: str, error: BaseException) -> None:
        """Give the first waiting caller an error, and have the other callers ask again."""
        first, *others = self._end(key)
        if first.verdict.set_running_or_notify_cancel():
            settle(first.verdict, error)
        self._again(others)

    def _again(self, asked: list[_Asked]) -> None:
        for each in asked:
            if not each.verdict.cancelled():
                self._ask(each)

    def _end(self, key: str) -> list[_Asked]:
        with self._lock:
            return self._flights.pop(key).asked

    def _leave(self, key: str, verdict: Future[Verdict]) -> None:
        """Cancel a kernel's judging once all callers that wait for it have cancelled."""
        if not verdict.cancelled():
            return
        with self._lock:
            flight = self._flights.get(key)
            judging = flight.judging if flight is not None else None
            wanted = flight is not None and any(
                not each.verdict.cancelled() for each in flight.asked
            )
        if judging is not None and not wanted:
            judging.cancel()


def _give(asked: _Asked, verdict: Verdict) -> None:
    if asked.verdict.set_running_or_notify_cancel():
        settle(asked.verdict, verdict)
