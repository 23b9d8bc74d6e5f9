"""Feeds stored jobs to the evaluator and stores their outcomes.

Contract:

- one thread does it all; other threads and the evaluator only leave messages in its inbox;
- twice as many jobs as the evaluator has workers are with it at a time, so that no worker waits;
- the tenants with the highest priority go first; equal ones take turns, one job each, and the jobs
  of one tenant keep their order. When a tenant comes that has no job with the evaluator, jobs of
  others that are there and have not begun are queued again, so that its first job goes next;
- an error of the evaluator that is the caller's (`UsageError`) is the job's outcome; any other is
  an `unavailable` verdict;
- a verdict that cannot be stored, as on a full disk, is kept in memory and stored later;
- `drain` ends it: jobs that the evaluator has begun are finished, all others stay queued.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, fields
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.serve.judges import Judges
from kernelgym.serve.keys import KeyRing
from kernelgym.serve.refusal import Refusal
from kernelgym.serve.requests import ProblemShelf
from kernelgym.serve.store import JobStore
from kernelgym.types import Evaluator, Job, Verdict
from kernelgym.verdict import Stages, unavailable

_TICK_S = 0.5
_CANARY_S = 30.0
_READY_S = 60.0
_PRUNE_S = 60.0
_CANARY = "canary"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Keeping:
    """Limits of what the state folder keeps: days, and size."""

    days: float = 7.0
    """Days for which the results of a finished batch are kept."""
    most_gb: float = 10.0
    """Size of the state file, in 10^9 bytes, above which the oldest results are deleted."""


@dataclass(frozen=True, slots=True)
class _Flying:
    tenant: str
    evaluator: Evaluator
    verdict: Future[Verdict]


class Runner:
    """Judges the jobs of a store.

    Args:
        store: The jobs.
        judges: Judge them; closed by `drain`, but for the server's own evaluator.
        keys: Tenants with their priorities and limits.
        shelf: The server's problems.
        canary: Job that is judged when no verdict has come for half a minute, to find out whether
            the evaluator works; None to believe it.
        keeping: Limits of the state folder.
        changed: Function that is called with the id of a batch when something of it has changed,
            from the thread of the runner.
    """

    def __init__(
        self,
        store: JobStore,
        judges: Judges,
        keys: KeyRing,
        shelf: ProblemShelf,
        canary: Job | None = None,
        keeping: Keeping | None = None,
        changed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.store, self.judges, self.keys, self.shelf = store, judges, keys, shelf
        self.canary, self.keeping, self.changed = canary, keeping or Keeping(), changed
        self.verdicts: Counter[str] = Counter()
        """Number of outcomes by status; ``refused`` for errors of callers."""
        self.stage_s: defaultdict[str, float] = defaultdict(float)
        """Seconds of all verdicts by stage; ``wall`` for the whole."""
        self.requeued = store.requeued
        """Number of jobs that were begun and queued again."""
        self._inbox: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._queues: dict[str, deque[str]] = {}
        self._served: dict[str, int] = {}
        self._turn = 0
        self._flying: dict[str, _Flying] = {}
        self._unsaved: dict[str, dict[str, Any]] = {}
        self._ending = False
        self._verdict_at = self._canary_at = self._pruned_at = float("-inf")
        self._thread = threading.Thread(target=self._work, name="kernelgym-serve", daemon=True)

    @property
    def is_ready(self) -> bool:
        """Whether the evaluator has given a valid verdict within the last minute."""
        recent = time.monotonic() - self._verdict_at < _READY_S
        return self._thread.is_alive() and not self._ending and (recent or self.canary is None)

    def start(self) -> None:
        """Queue the jobs that the store holds, and begin to judge."""
        for tenant, job in self.store.waiting():
            self._inbox.put((job, tenant))
        self._thread.start()

    def take(self, tenant: str, jobs: tuple[str, ...]) -> None:
        """Queue new jobs of a tenant."""
        for job in jobs:
            self._inbox.put((job, tenant))

    def drain(self) -> None:
        """Wait for the jobs that the evaluator has begun, and end. All others stay queued."""
        self._ending = True
        self._inbox.put(("", ""))
        self._thread.join()
        self.judges.close()

    def _work(self) -> None:
        ticked = float("-inf")
        while True:
            try:
                self._receive()
                if self._ending:
                    self._take_back()
                    if not self._flying:
                        self._save()
                        return
                else:
                    self._feed()
                if time.monotonic() - ticked >= _TICK_S:
                    self._tick()
                    ticked = time.monotonic()
            except Exception:  # one bad job or a full disk must not end the service
                _LOG.exception("the runner continues after an error")
                time.sleep(_TICK_S)

    def _receive(self) -> None:
        """Handle the messages in the inbox; wait a moment for the first one."""
        came = set()
        try:
            message = self._inbox.get(timeout=_TICK_S)
            while True:
                job, tenant = message
                if tenant:
                    self._queues.setdefault(tenant, deque()).append(job)
                    came.add(tenant)
                elif job:
                    self._land(job)
                message = self._inbox.get_nowait()
        except queue.Empty:
            pass
        if came - {each.tenant for each in self._flying.values()}:
            self._take_back()

    def _feed(self) -> None:
        most = 2 * max(1, self.judges.own.capabilities.workers)
        while len(self._flying) < most and (tenant := self._next_tenant()) is not None:
            waiting = self._queues[tenant]
            found = self.store.start(waiting[0])
            waiting.popleft()
            if found is None:  # cancelled or overdue
                continue
            self._turn += 1
            self._served[tenant] = self._turn
            try:
                job = self.shelf.job(found.request)
                evaluator = self.judges.of(found.request)
            except Refusal as refusal:  # another version of the server has taken the job
                self._finish(found.id, _error(refusal.code, refusal.message))
                continue
            except UsageError as error:
                self._finish(found.id, _error("usage", str(error)))
                continue
            except Exception as error:  # the job has begun, and nothing would ever finish it
                _LOG.exception("job %s cannot be given to an evaluator", found.id)
                self._finish(found.id, self._failed(error))
                continue
            self._submit(found.id, tenant, evaluator, job, found.request["seed"])
            self.changed(found.batch)

    def _submit(
        self, name: str, tenant: str, evaluator: Evaluator, job: Job, seed: str = ""
    ) -> None:
        try:
            verdict = evaluator.submit(job, seed)
        except Exception as error:
            verdict = Future()
            verdict.set_exception(error)
        self._flying[name] = _Flying(tenant, evaluator, verdict)
        verdict.add_done_callback(lambda _: self._inbox.put((name, "")))

    def _next_tenant(self) -> str | None:
        """Return the tenant whose job goes next."""
        running = Counter(each.tenant for each in self._flying.values())
        best: tuple[int, int, str] | None = None
        for name, waiting in list(self._queues.items()):
            if not waiting:
                del self._queues[name]
                continue
            tenant = self.keys.named(name)
            if tenant.running and running[name] >= tenant.running:
                continue
            rank = (-tenant.priority, self._served.get(name, 0), name)
            best = rank if best is None else min(best, rank)
        return best[2] if best is not None else None

    def _land(self, name: str) -> None:
        """Store the outcome of a job that the evaluator has finished."""
        flying = self._flying.pop(name)
        try:
            verdict = flying.verdict.result()
        except CancelledError:  # by `_take_back`
            if name != _CANARY:
                self.store.queue_again(name)
                self._queues.setdefault(flying.tenant, deque()).appendleft(name)
            return
        except UsageError as error:
            outcome = _error("usage", str(error))
            self.verdicts["refused"] += name != _CANARY
        except Exception as error:
            outcome = self._failed(error)
        else:
            outcome = {"verdict": verdict.to_dict()}
            self._count(verdict)
        if name != _CANARY:
            self._finish(name, outcome)

    def _count(self, verdict: Verdict) -> None:
        if verdict.valid:
            self._verdict_at = time.monotonic()
        self.verdicts[verdict.status.value] += 1
        self.stage_s["wall"] += verdict.wall_s
        if verdict.stages is not None:
            for stage in fields(Stages):
                self.stage_s[stage.name.removesuffix("_s")] += getattr(verdict.stages, stage.name)

    def _failed(self, error: Exception) -> dict[str, Any]:
        """Return the outcome of a job whose evaluator raised: a verdict `unavailable`."""
        message = f"the evaluator raised {type(error).__name__}: {error}"
        return self._unavailable(message, "evaluator_failed")

    def _unavailable(self, message: str, code: str) -> dict[str, Any]:
        can = self.judges.own.capabilities
        verdict = unavailable(message, code, can.device, can.ruleset.label)
        self._count(verdict)
        return {"verdict": verdict.to_dict()}

    def _finish(self, job: str, outcome: dict[str, Any]) -> None:
        self._unsaved[job] = outcome
        self._save()

    def _save(self) -> None:
        """Store the outcomes that could not be stored before."""
        for job, outcome in list(self._unsaved.items()):
            try:
                batch = self.store.finish(job, outcome, time.time())
            except sqlite3.Error as error:
                _LOG.error("%d verdicts cannot be stored yet: %s", len(self._unsaved), error)
                return
            del self._unsaved[job]
            if batch:
                self.changed(batch)

    def _take_back(self) -> None:
        """Take jobs back from the evaluator that no worker has begun, the last one first."""
        for each in list(self._flying.values())[::-1]:
            each.verdict.cancel()

    def _tick(self) -> None:
        self._save()
        for job in self.store.overdue(time.time()):
            self._finish(
                job, self._unavailable("judging did not begin before the deadline", "deadline")
            )
        now = time.monotonic()
        quiet = now - max(self._verdict_at, self._canary_at) >= _CANARY_S
        if self.canary is not None and quiet and not self._ending and _CANARY not in self._flying:
            self._canary_at = now
            self._submit(_CANARY, "", self.judges.own, self.canary)
        if now - self._pruned_at >= _PRUNE_S:
            self._pruned_at = now
            self.judges.close_idle([each.evaluator for each in self._flying.values()])
            keeping = self.keeping
            self.store.prune(time.time() - keeping.days * 86_400, keeping.most_gb * 1e9)


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}
