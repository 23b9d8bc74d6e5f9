"""HTTP interface of the verdict service: routes and their answers.

`VerdictService` holds the parts; `create_app` makes the FastAPI application. Every answer that
refuses a request is ``{"error": {"code", "message"}}`` with a sentence for the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from kernelgym.evaluators.wire import (
    MOST_BODY_BYTES,
    MOST_JOBS,
    JobsRequest,
    capabilities_data,
)
from kernelgym.machine import installed_version
from kernelgym.reading import schema
from kernelgym.serve.gate import add_refusals, body_of, refused, tenant_of
from kernelgym.serve.judges import Judges, MakeEvaluator
from kernelgym.serve.keys import KeyRing, Tenant
from kernelgym.serve.metrics import metrics_text
from kernelgym.serve.refusal import Refusal
from kernelgym.serve.requests import ProblemShelf, read_jobs
from kernelgym.serve.runner import Keeping, Runner
from kernelgym.serve.store import JobStore, OtherBody, StoredBatch, StoredEvent
from kernelgym.suites.base import Suite
from kernelgym.types import Evaluator, Job

_LONGEST_WAIT_S = 60.0
_MOST_STREAMS = 64
_PING_S = 15.0
_LOOK_S = 1.0
_RETRY_S = 5.0
_LONGEST_IDEMPOTENCY = 200


class Changes:
    """Wakes requests that wait for a batch to change. `tell` may be called from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def tell(self, batch: str) -> None:
        """Wake the requests that wait for a batch."""
        if self._loop is not None and batch in self._waiting:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake, batch)

    def _wake(self, batch: str) -> None:
        for event in self._waiting.get(batch, ()):
            event.set()

    @contextlib.contextmanager
    def of(self, batch: str) -> Any:
        """Yield an event that is set when a given batch has changed."""
        self._loop = asyncio.get_running_loop()
        event = asyncio.Event()
        self._waiting.setdefault(batch, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[batch].discard(event)
            if not self._waiting[batch]:
                del self._waiting[batch]


@dataclass(slots=True, eq=False)
class VerdictService:
    """The parts of a verdict service.

    Closing it drains the runner and gives the state folder up; the evaluator stays open.
    """

    store: JobStore
    evaluator: Evaluator
    make: MakeEvaluator | None = None
    """Function that makes an evaluator of other rules; None to judge by those of `evaluator`
    alone."""
    suites: Sequence[Suite] = ()
    """Suites whose problems jobs may name."""
    keys: KeyRing = field(default_factory=lambda: KeyRing(None))
    canary: Job | None = None
    """Job by which the server checks that the evaluator works; None to skip the check."""
    keeping: Keeping = field(default_factory=Keeping)
    any_host: bool = False
    """Whether a server without keys answers requests that name any host, not only loopback."""
    is_ending: Callable[[], bool] = lambda: False
    """Whether the server is about to end, so that it takes no new jobs."""
    judges: Judges = field(init=False)
    shelf: ProblemShelf = field(init=False)
    changes: Changes = field(init=False, default_factory=Changes)
    runner: Runner = field(init=False)
    streams: Counter[str] = field(init=False, default_factory=Counter)
    """Open event streams by tenant."""

    def __post_init__(self) -> None:
        self.shelf, self.judges = ProblemShelf(self.suites), Judges(self.evaluator, self.make)
        self.runner = Runner(
            self.store,
            self.judges,
            self.keys,
            self.shelf,
            self.canary,
            self.keeping,
            self.changes.tell,
        )

    def close(self) -> None:
        """End the runner after the jobs that have begun, and close the store."""
        self.runner.drain()
        self.store.close()


def create_app(service: VerdictService) -> FastAPI:
    """Return the application of a service; its lifespan starts and closes the service."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.runner.start()
        yield
        await asyncio.to_thread(service.close)

    version = installed_version("kernelgym")
    app = FastAPI(title="kernelgym verdict service", version=version, lifespan=lifespan)
    routes = _Routes(service)
    posted: dict[str, Any] = {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _self_contained(schema(JobsRequest))}},
        }
    }
    add = app.add_api_route
    shared: dict[str, Any] = {"response_model": None}
    add("/v1/jobs", routes.post_jobs, methods=["POST"], openapi_extra=posted, **shared)
    add("/v1/jobs/{job_id}", routes.get_job, methods=["GET"], **shared)
    add("/v1/jobs/{job_id}", routes.delete_job, methods=["DELETE"], **shared)
    add("/v1/batches/{batch_id}", routes.get_batch, methods=["GET"], **shared)
    add("/v1/batches/{batch_id}", routes.delete_batch, methods=["DELETE"], **shared)
    add("/v1/batches/{batch_id}/events", routes.events, methods=["GET"], **shared)
    add("/v1/info", routes.info, methods=["GET"], **shared)
    add("/healthz", routes.healthz, methods=["GET"], **shared)
    add("/readyz", routes.readyz, methods=["GET"], **shared)
    add("/metrics", routes.metrics, methods=["GET"], **shared)
    add_refusals(app)
    app.add_exception_handler(sqlite3.Error, _no_storage)
    return app


class _Routes:
    """Handlers of the service's requests, one method for each route."""

    def __init__(self, service: VerdictService) -> None:
        self._service = service

    async def post_jobs(self, request: Request) -> Response:
        """Queue kernels to be judged.

        Header ``Idempotency-Key``: a request that is sent again under its key is the same request.
        ``?wait=S`` answers with the verdicts if all are there within S seconds (60 at most).
        """
        service, tenant = self._service, self._tenant(request, "judge")
        wait_s = _wait_of(request)
        if service.is_ending():
            raise Refusal(503, "ending", "the server is about to end and takes no jobs", _RETRY_S)
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise Refusal(415, "content_type", "send JSON, with content-type: application/json")
        key = request.headers.get("idempotency-key") or secrets.token_hex(16)
        if len(key) > _LONGEST_IDEMPOTENCY:
            raise Refusal(
                422, "invalid", f"Idempotency-Key has {_LONGEST_IDEMPOTENCY} characters at most"
            )
        body = await body_of(request)
        batch, ids, is_new = await asyncio.to_thread(self._queue, tenant, key, body)
        if is_new:
            service.runner.take(tenant.name, ids)
        if wait_s:
            await self._until_done(batch, wait_s, request)
            found = service.store.batch(tenant.name, batch)
            if found is not None and found.left == 0:
                return JSONResponse(found.to_dict())
        return JSONResponse(
            {"id": batch, "done": False, "jobs": [{"id": each} for each in ids]}, 202
        )

    def _queue(self, tenant: Tenant, key: str, body: bytes) -> tuple[str, tuple[str, ...], bool]:
        """Read the jobs in a request and store them, unless a limit forbids it."""
        store, keeping = self._service.store, self._service.keeping
        jobs = read_jobs(body, tenant, self._service.judges, self._service.shelf)
        digest = hashlib.sha256(json.dumps(jobs, sort_keys=True).encode("ascii")).hexdigest()
        if not store.knows(tenant.name, key):
            if len(jobs) > tenant.queued:  # no later time is better
                raise Refusal(
                    413,
                    "too_many_jobs",
                    f"the request has {len(jobs)} jobs, and {tenant.queued} of this key may wait; "
                    "send fewer in each request",
                )
            waiting = store.queued(tenant.name)
            if waiting + len(jobs) > tenant.queued:
                raise Refusal(
                    429,
                    "queue_full",
                    f"{waiting} jobs of this key wait already, and its limit is {tenant.queued}; "
                    "send more once verdicts have come",
                    _RETRY_S,
                )
            if store.size_bytes() > keeping.most_gb * 1e9:
                raise Refusal(
                    503, "state_full", "the server's state folder is full; try later", 60.0
                )
        try:
            return store.add(tenant.name, key, digest, jobs, time.time())
        except OtherBody:
            raise Refusal(
                409,
                "other_body",
                f"Idempotency-Key {key!r} was used for another request; take a new key",
            ) from None

    async def get_job(self, request: Request, job_id: str) -> Response:
        """Return one job, with its verdict once it is there."""
        found = self._service.store.job(self._tenant(request, "judge").name, job_id)
        if found is None:
            raise _unknown("job", job_id)
        return JSONResponse(found.to_dict())

    async def delete_job(self, request: Request, job_id: str) -> Response:
        """Cancel a job that has not begun."""
        tenant = self._tenant(request, "judge").name
        found = self._service.store.job(tenant, job_id)
        if found is None:
            raise _unknown("job", job_id)
        return self._cancel(tenant, found.batch, [job_id])

    async def get_batch(self, request: Request, batch_id: str) -> Response:
        """Return all jobs of a batch, with the verdicts that are there."""
        found = await asyncio.to_thread(self._batch, self._tenant(request, "judge").name, batch_id)
        return JSONResponse(found.to_dict())

    async def delete_batch(self, request: Request, batch_id: str) -> Response:
        """Cancel the jobs of a batch that have not begun."""
        tenant = self._tenant(request, "judge").name
        found = self._batch(tenant, batch_id)
        return self._cancel(tenant, batch_id, [job.id for job in found.jobs])

    def _cancel(self, tenant: str, batch: str, jobs: list[str]) -> Response:
        count = self._service.store.cancel(tenant, jobs, time.time())
        self._service.changes.tell(batch)
        return JSONResponse({"cancelled": count})

    async def events(self, request: Request, batch_id: str) -> Response:
        """Stream a batch's events: queued, started, verdict, cancelled, done.

        Header ``Last-Event-ID``: the number of the last event that is known already. Answers 204
        if the batch is done and has no later event.
        """
        tenant = self._tenant(request, "judge")
        if not self._service.store.owns(tenant.name, batch_id):
            raise _unknown("batch", batch_id)
        last = request.headers.get("last-event-id", "0")
        if not (last.isdecimal() and last.isascii() and len(last) < 19):
            raise Refusal(422, "invalid", f"Last-Event-ID is an event's number, got {last!r}")
        if self._service.streams[tenant.name] >= _MOST_STREAMS:
            raise Refusal(
                429, "streams", f"this key has {_MOST_STREAMS} open event streams", _RETRY_S
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        store, number = self._service.store, int(last)
        if store.is_done(batch_id) and not store.events(batch_id, number):
            return Response(status_code=204)  # tells a browser's EventSource not to connect again
        stream = self._stream(request, tenant.name, batch_id, number)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _stream(
        self, request: Request, tenant: str, batch: str, last: int
    ) -> AsyncIterator[str]:
        service, spoke = self._service, time.monotonic()
        service.streams[tenant] += 1
        try:
            with service.changes.of(batch) as changed:
                while not service.is_ending() and not await request.is_disconnected():
                    changed.clear()
                    if events := service.store.events(batch, last):
                        last, spoke = events[-1].number, time.monotonic()
                        yield "".join(map(_told, events))
                        if events[-1].kind == "done":
                            return
                    else:
                        if time.monotonic() - spoke >= _PING_S:
                            spoke = time.monotonic()
                            yield ": the batch is not done\n\n"
                        await _set_within(changed, _LOOK_S)
        finally:
            service.streams[tenant] -= 1

    async def info(self, request: Request) -> Response:
        """Return what the server judges by, on which devices, and the limits of the key.

        ``?ruleset=LABEL`` and ``?timing=true|false``: what it can do by those rules.
        """
        tenant, judges = self._tenant(request, "judge"), self._service.judges
        asked = request.query_params
        known = {"": None, "true": True, "false": False}
        if (given := asked.get("timing", "")) not in known:
            raise Refusal(
                422, "invalid", f"the query parameter timing must be true or false, got {given!r}"
            )
        timing = known[given]
        can = judges.capabilities(asked.get("ruleset", ""), timing)
        labels = [label.rpartition("@") for label in judges.labels()]
        told = dataclasses.asdict(tenant)
        del told["sha256"]
        return JSONResponse(
            {
                "version": installed_version("kernelgym"),
                "devices": {can.device_kind or can.device: list(can.devices)},
                "ruleset": can.ruleset.label,
                "rulesets": [{"name": name, "digest": digest} for name, _, digest in labels],
                "languages": list(can.languages),
                "provenance": list(can.provenance),
                "limits": {"body_bytes": MOST_BODY_BYTES, "jobs": MOST_JOBS},
                "key": told,
                "capabilities": capabilities_data(can),
            }
        )

    async def healthz(self) -> Response:
        """Answer 200 as long as the process lives."""
        return PlainTextResponse("alive\n")

    async def readyz(self) -> Response:
        """Answer 200 if jobs are taken and a verdict has come in the last minute, else 503."""
        if self._service.is_ending() or not self._service.runner.is_ready:
            return PlainTextResponse("not ready\n", 503, headers={"Retry-After": "5"})
        return PlainTextResponse("ready\n")

    async def metrics(self, request: Request) -> Response:
        """Return figures for Prometheus; needs the role ``admin``."""
        self._tenant(request, "admin")
        text = await asyncio.to_thread(metrics_text, self._service.runner)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    def _tenant(self, request: Request, role: str) -> Tenant:
        service = self._service
        return tenant_of(request, service.keys, role, any_host=service.any_host)

    def _batch(self, tenant: str, batch: str) -> StoredBatch:
        found = self._service.store.batch(tenant, batch)
        if found is None:
            raise _unknown("batch", batch)
        return found

    async def _until_done(self, batch: str, wait_s: float, request: Request) -> None:
        """Wait until a batch is done, the time has passed, or the server or client ends."""
        service, end = self._service, time.monotonic() + wait_s
        with service.changes.of(batch) as changed:
            while not service.store.is_done(batch) and not service.is_ending():
                left_s = end - time.monotonic()
                if left_s <= 0.0 or await request.is_disconnected():
                    return
                await _set_within(changed, min(left_s, _LOOK_S))
                changed.clear()


def _wait_of(request: Request) -> float:
    given = request.query_params.get("wait", "0")
    try:
        wait_s = float(given)
    except ValueError:
        wait_s = -1.0
    if not 0.0 <= wait_s <= _LONGEST_WAIT_S:
        raise Refusal(
            422, "invalid", f"wait is a number of seconds up to {_LONGEST_WAIT_S:g}, got {given!r}"
        )
    return wait_s


def _told(event: StoredEvent) -> str:
    return f"id: {event.number}\nevent: {event.kind}\ndata: {json.dumps(event.data)}\n\n"


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def _unknown(what: str, name: str) -> Refusal:
    return Refusal(404, "unknown", f"there is no {what} {name!r}; results are kept for some days")


async def _no_storage(request: Request, error: Any) -> Response:
    message = f"the server cannot use its state file: {error}"
    return await refused(request, Refusal(503, "state", message, _RETRY_S))


def _self_contained(whole: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema in which every reference is replaced by its target."""
    defs = whole["$defs"]

    def inlined(node: Any) -> Any:
        if isinstance(node, list):
            return [inlined(each) for each in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return inlined(defs[node["$ref"].rpartition("/")[2]])
        return {name: inlined(value) for name, value in node.items()}

    found: dict[str, Any] = inlined({"$ref": whole["$ref"]})
    return found
