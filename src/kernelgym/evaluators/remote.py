"""`RemoteEvaluator`: has kernels judged by a verdict service (``kernelgym serve``).

Contract:

- jobs that are submitted together travel in one request, and verdicts come back as they are given:
  by server-sent events, or by asking again and again if a proxy holds the events back;
- a request that fails for a reason that may pass (no connection, 429, 5xx) is sent again under its
  idempotency key, so no kernel is judged twice for it. After `patience_s` without an answer, the
  verdict is `unavailable`. As long as the server answers, a verdict is waited for without limit;
- a refusal that is the caller's fault is a `UsageError` with the server's sentence, for the job
  that it concerns alone;
- kernels are judged by the ruleset that was asked for, or by the server's own; a server that does
  not know it by the same digest is refused;
- a kernel that does not fit into a request is `rejected`;
- cancelling a future takes its job back if judging has not begun.

Threads may share an object, forked processes too; it pickles, and copies deeply to itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from kernelgym.errors import UnknownName, UsageError
from kernelgym.evaluators.base import EvaluatorBase
from kernelgym.evaluators.dispatch import as_they_come, settle
from kernelgym.evaluators.service_client import MAY_PASS, GaveUp, Refused, ServiceClient
from kernelgym.evaluators.wire import (
    MOST_BODY_BYTES,
    MOST_JOBS,
    JobRequest,
    WireKernel,
    WireProblem,
    capabilities_from,
)
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.types import Capabilities, Finding, Job, Kernel, Problem, Severity, Status, Verdict
from kernelgym.verdict import unavailable

if TYPE_CHECKING:
    import httpx

_GATHER_S = 0.002  # while a request is under way: jobs that are submitted together travel together
_MOST_REQUESTS = 32
_FIRST_CONTACT_S = 10.0
_WAIT_S = 20  # for a request of one job: the verdict is then the answer
_SILENCE_S = 40.0  # the server speaks every 15 s
_POLL_S = 1.0
_RESUME_S = 0.2
_BODY_MARGIN = 16_384
_NEEDS_SOURCE = ("unknown_problem", "other_digest")


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    job: Job
    seed: str
    verdict: Future[Verdict] = dataclasses.field(default_factory=Future)


class RemoteEvaluator(EvaluatorBase):
    """Judges kernels by a verdict service.

    Args:
        url: Address of the service, such as ``https://judge:8765``.
        key: Key of the service; None for the environment variable ``KERNELGYM_API_KEY``, or the
            line of that name in the file ``.env``.
        ruleset: A ruleset or the name of one; None for the server's own.
        timing: Whether correct kernels are timed; None for what the server does by itself.
        patience_s: Seconds without an answer after which a kernel's verdict is `unavailable`.
        transport: Transport of httpx in place of the network, for tests.

    Raises:
        UsageError: If the address is not an http or https address, or there is no such ruleset.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        ruleset: str | Ruleset | None = None,
        timing: bool | None = None,
        patience_s: float = 600.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not patience_s > 0:
            raise UsageError(f"patience_s must be above 0, got {patience_s}")
        self._client = ServiceClient(url, key, transport)
        self.url, self.patience_s = self._client.url, patience_s
        self._ruleset = None if ruleset is None else find_ruleset(ruleset)
        self._timing = timing
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Reset to no jobs, also in a forked child, which lacks its parent's threads."""
        self._process, self._lock = os.getpid(), threading.Lock()
        self._places = threading.Semaphore(_MOST_REQUESTS)
        self._waiting: list[_Asked] = []
        self._is_sending, self._under_way = False, 0
        self._info: dict[str, Any] | None = None
        self._can: Capabilities | None = None
        self._with_source: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "key": self._client.key,
            "ruleset": self._ruleset,
            "timing": self._timing,
            "patience_s": self.patience_s,
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        RemoteEvaluator.__init__(self, **state)

    def __repr__(self) -> str:
        return f"RemoteEvaluator({self.url!r})"

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the server's evaluator, asked for once.

        Raises:
            UsageError: If no service answers, it refuses the key, or it judges by other rules.
        """
        self._after_fork()
        if self._can is None:
            self._connect()
        assert self._can is not None
        return self._can

    def _connect(self) -> None:
        asked = {"ruleset": "" if self._ruleset is None else self._ruleset.label}
        if self._timing is not None:
            asked["timing"] = str(self._timing).lower()
        path = f"/v1/info?{urlencode(asked)}"
        try:
            info = self._client.ask("GET", path, min(self.patience_s, _FIRST_CONTACT_S)).json()
            can = capabilities_from(info["capabilities"])
            told = info["ruleset"]
        except Refused as refusal:
            raise UsageError(f"{self.url} refuses: {refusal}") from None
        except GaveUp as failure:
            said = f"no verdict service answers at {self.url}: {failure}; start one by `kernelgym "
            said += "serve`, or correct the address"
            if failure.answered:
                said = f"the server at {self.url} answers no request for now: {failure}; try later"
            raise UsageError(said) from None
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise UsageError(
                f"the answer of {self.url} cannot be read ({type(error).__name__}: {error}); it is "
                "no verdict service, or one of another version of kernelgym"
            ) from None
        own = self._ruleset or _known(can.ruleset)
        if can.ruleset.label != told or own.label != told:
            raise UsageError(
                f"{self.url} judges by ruleset {told}, and this version of kernelgym has "
                f"{own.label}: verdicts would not be comparable; install the same version on both "
                "sides"
            )
        self._info, self._can = info, can

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of a job's verdict.

        Args:
            job: The job.
            seed: Seed of inputs and weights, as for `evaluate`.

        The future raises `UsageError` if the server refuses the job.
        """
        (asked,) = self._submit([_Asked(job, seed)])
        return asked.verdict

    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        """Judge many kernels; yields (index of the job, verdict) as they come.

        Those of a sequence travel together; those of another iterable are taken as verdicts come.

        Raises:
            UsageError: If the server refuses one of the jobs.
        """
        if not isinstance(jobs, Sequence):
            yield from as_they_come(self.submit, jobs, self.capabilities.workers)
            return
        asked = iter(self._submit([_Asked(job, "") for job in jobs]))
        yield from as_they_come(lambda _: next(asked).verdict, jobs, len(jobs))

    def close(self) -> None:
        """End all requests; jobs in flight become `unavailable`. Closing twice is harmless."""
        self._closed = True
        if self._process == os.getpid():
            self._client.close()

    def _after_fork(self) -> None:
        if self._process != os.getpid():
            before = self._client  # its connections are the parent's
            self._client = ServiceClient(before.url, before.key, before.transport)
            self._begin()

    def _submit(self, asked: list[_Asked]) -> list[_Asked]:
        self._after_fork()
        if self._closed:
            raise UsageError("this RemoteEvaluator is closed; make another one")
        with self._lock:
            self._waiting += asked
            begin = bool(asked) and not self._is_sending
            self._is_sending |= begin
        if begin:
            threading.Thread(target=self._send, name="kernelgym-remote", daemon=True).start()
        return asked

    def _send(self) -> None:
        """Send the waiting jobs, as many in one request as have gathered, until none waits.

        The first of them do not wait for others.
        """
        while True:
            self._places.acquire()
            if self._under_way:
                time.sleep(_GATHER_S)
            if not (asked := self._take()):
                self._places.release()
                return
            threading.Thread(
                target=self._judge, args=(asked,), name="kernelgym-remote", daemon=True
            ).start()

    def _take(self) -> list[_Asked]:
        """Remove and return the next jobs that fit into one request."""
        with self._lock:
            size = count = 0
            for asked in self._waiting[:MOST_JOBS]:
                size += len(json.dumps(self._request(asked)))
                if count and size > MOST_BODY_BYTES - _BODY_MARGIN:
                    break
                count += 1
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
            self._is_sending = bool(taken)
            self._under_way += bool(taken)
        return taken

    def _judge(self, asked: list[_Asked]) -> None:
        """Have the service judge a batch of jobs, and settle their futures."""
        try:
            _Batch(self, asked).judge()
        except BaseException as error:
            _settle_all(asked, error)
        finally:
            with self._lock:
                self._under_way -= 1
            self._places.release()

    def _request(self, asked: _Asked) -> dict[str, Any]:
        """Return the request that describes a job to the service."""
        problem, kernel = asked.job.problem, asked.job.kernel
        own: dict[str, Any] = {}
        if problem.digest in self._with_source:
            names = ("source", "suite", "level", "name", "family")
            own = {name: getattr(problem, name) for name in names}
        can = self._can
        request = JobRequest(
            problem=WireProblem(id=problem.id, digest=problem.digest, **own),
            kernel=WireKernel(source=kernel.source, language=kernel.language),
            ruleset=can.ruleset.label if can is not None else "",
            device_kind=can.device_kind if can is not None else "",
            timing=can.timed if can is not None else None,
            seed=asked.seed,
        )
        return dataclasses.asdict(request)

    def _send_sources(self, problems: Iterable[Problem]) -> bool:
        """Send the sources of problems from now on; False if the key may not, or they were sent."""
        digests = {problem.digest for problem in problems} - self._with_source
        roles = (self._info or {}).get("key", {}).get("roles", ())
        if not digests or "problems" not in roles:
            return False
        self._with_source |= digests
        return True


class _Batch:
    """The jobs of one request, and the thread that waits for their verdicts."""

    def __init__(self, remote: RemoteEvaluator, asked: Sequence[_Asked]) -> None:
        self._remote = remote
        self._asked = [each for each in asked if not each.verdict.done()]
        self._key = secrets.token_hex(16)
        self._by_name: dict[str, _Asked] = {}
        self._id = ""
        self._is_left = threading.Event()
        self._open = list(self._asked)

    def judge(self) -> None:
        """Settle the futures of all jobs."""
        remote, asked = self._remote, self._asked
        if not asked:
            return
        can = remote.capabilities
        body = json.dumps({"jobs": [remote._request(each) for each in asked]}).encode("ascii")
        if len(body) > MOST_BODY_BYTES and len(asked) > 1:
            self._in_halves()
            return
        path = f"/v1/jobs?wait={_WAIT_S if len(asked) == 1 else 0}"
        try:
            while True:  # once more if the server has lost the batch
                found = remote._client.ask("POST", path, remote.patience_s, body, self._key).json()
                if self._follow(found):
                    return
        except Refused as refusal:
            self._refused(refusal)
        except GaveUp as failure:
            what = "takes no jobs" if failure.answered else "does not answer"
            message = f"the verdict service at {remote.url} {what}: {failure}"
            gone = unavailable(message, "service_unreachable", can.device, can.ruleset.label)
            _settle_all(asked, gone)

    def _is_done(self) -> bool:
        """Return True if every future is done, in constant time on average."""
        while self._open and self._open[-1].verdict.done():
            self._open.pop()
        return not self._open

    def _in_halves(self) -> None:
        half = len(self._asked) // 2
        for part in (self._asked[:half], self._asked[half:]):
            _Batch(self._remote, part).judge()

    def _refused(self, refusal: Refused) -> None:
        """Send refused jobs in another way, or settle their futures with the refusal."""
        problems = [each.job.problem for each in self._asked]
        if refusal.code in _NEEDS_SOURCE and self._remote._send_sources(problems):
            _Batch(self._remote, self._asked).judge()
        elif len(self._asked) > 1 and refusal.status in (403, 413, 422):
            self._in_halves()  # one bad job spoils no other
        elif refusal.status == 413 and _size(self._asked[0].job.kernel) > MOST_BODY_BYTES // 2:
            _settle_one(self._asked[0], self._too_large())
        else:
            _settle_all(self._asked, UsageError(f"{self._remote.url} refuses: {refusal}"))

    def _too_large(self) -> Verdict:
        """Return the verdict on a kernel that does not fit into a request."""
        can, size = self._remote.capabilities, _size(self._asked[0].job.kernel)
        message = (
            f"the kernel takes {size} bytes in JSON, and a request to the verdict service has "
            f"{MOST_BODY_BYTES} at most"
        )
        finding = Finding("too_large", message, Severity.HARD)
        return Verdict(
            Status.REJECTED,
            findings=(finding,),
            message=message,
            device=can.device,
            ruleset=can.ruleset.label,
        )

    def _follow(self, found: Mapping[str, Any]) -> bool:
        """Wait for the verdicts of a batch; return False if the server has forgotten the batch."""
        remote, self._id = self._remote, found["id"]
        names = [row["id"] for row in found["jobs"]]
        self._by_name = dict(zip(names, self._asked, strict=True))
        for each in self._asked:
            each.verdict.add_done_callback(self._leave)
        self._settle(found["jobs"])
        last, pause_s = 0, cast("float | None", _RESUME_S)
        while not self._is_done():
            if pause_s is not None:
                last, pause_s = self._stream(last)
            else:
                time.sleep(_POLL_S)
            if self._is_done():
                break
            try:
                answer = remote._client.ask("GET", f"/v1/batches/{self._id}", remote.patience_s)
            except Refused as refusal:
                if refusal.status == 404:
                    return False
                raise
            self._settle(answer.json()["jobs"])
            if pause_s is not None and not self._is_done():
                time.sleep(pause_s)
        return True

    def _stream(self, last: int) -> tuple[int, float | None]:
        """Settle futures by the batch's events until they end.

        Args:
            last: Number of the last event that was read.

        Returns:
            The same after reading, and the seconds after which the next stream may be asked for;
            None if one was silent for too long or was none, as behind a proxy that holds answers
            back.
        """
        import httpx

        remote, kind = self._remote, ""
        try:
            with remote._client.http().stream(
                "GET",
                f"{remote.url}/v1/batches/{self._id}/events",
                headers={"Last-Event-ID": str(last), "Accept": "text/event-stream"},
                timeout=httpx.Timeout(10.0, read=_SILENCE_S),
            ) as answer:
                if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                    return last, _POLL_S if answer.status_code in MAY_PASS else None
                for line in answer.iter_lines():
                    field, _, value = line.partition(": ")
                    if field == "event":
                        kind = value
                    elif field == "id":
                        last = int(value)
                    elif field == "data" and kind in ("verdict", "cancelled"):
                        self._settle([{**json.loads(value), "state": kind}])
                    if self._is_done():
                        break
        except httpx.ReadTimeout:
            return last, None
        except (httpx.TransportError, RuntimeError, ValueError):
            pass  # cut off: the batch is asked for, and the events continue after the last one
        return last, _RESUME_S

    def _settle(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Settle the futures of jobs that have an outcome."""
        for row in rows:
            asked = self._by_name.get(row.get("job") or row.get("id", ""))
            if asked is None or asked.verdict.done():
                continue
            if "verdict" in row:
                _settle_one(asked, Verdict.from_dict(row["verdict"]))
            elif "error" in row:
                _settle_one(asked, UsageError(row["error"]["message"]))
            elif row.get("state") == "cancelled":
                _settle_one(asked, unavailable("the job was cancelled", "cancelled"))

    def _leave(self, verdict: Future[Verdict]) -> None:
        if verdict.cancelled() and not self._is_left.is_set():
            self._is_left.set()
            threading.Thread(target=self._take_back, daemon=True).start()

    def _take_back(self) -> None:
        """Tell the server which jobs are no longer wanted."""
        time.sleep(_GATHER_S)
        self._is_left.clear()
        gone = [name for name, asked in self._by_name.items() if asked.verdict.cancelled()]
        whole = all(asked.verdict.done() for asked in self._asked)
        paths = [f"batches/{self._id}"] if whole else [f"jobs/{name}" for name in gone]
        with contextlib.suppress(Refused, GaveUp):
            for path in paths:
                self._remote._client.ask("DELETE", f"/v1/{path}", _FIRST_CONTACT_S)


def _settle_one(asked: _Asked, outcome: Verdict | BaseException) -> None:
    if not asked.verdict.done() and asked.verdict.set_running_or_notify_cancel():
        settle(asked.verdict, outcome)


def _settle_all(asked: Iterable[_Asked], outcome: Verdict | BaseException) -> None:
    for each in asked:
        _settle_one(each, outcome)


def _size(kernel: Kernel) -> int:
    """Return the bytes that a kernel takes in a request to the verdict service."""
    return len(json.dumps(kernel.source))


def _known(rules: Ruleset) -> Ruleset:
    """Return the ruleset of this version of kernelgym that a server's ruleset is named after."""
    for wanted in (rules.label, rules.name):
        with contextlib.suppress(UnknownName):
            return find_ruleset(wanted)
    return rules


@functools.cache
def evaluator_at(url: str, ruleset: Ruleset | None = None) -> RemoteEvaluator:
    """Return the evaluator of an address that all callers in this process share.

    Args:
        url: The address.
        ruleset: The ruleset; None for the server's own.
    """
    return RemoteEvaluator(url, ruleset=ruleset)
