"""Client processes of the soak of the verdict service, and the proxy that cuts their connections.

Run ``python -m benchmarks.service.clients FILE``; FILE is the JSON of a `Share`. Each thread has a
connection of its own and takes one batch after the other. Finished batches are appended to the
share's ``out``, and a client that is started again takes the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from kernelgym import RemoteEvaluator, UsageError
from kernelgym.types import Job, Kernel, Problem, Verdict

_TRY_S = 0.2


@dataclass(frozen=True)
class Share:
    """Work of one client process."""

    url: str
    key: str
    out: str
    """File of finished batches, one JSON line each."""
    problem: dict[str, Any]
    """Fields of the problem of all kernels."""
    batches: dict[str, list[list[str]]]
    """Kernels of each batch by the batch's name, each as language, source and seed."""
    until: float
    """Time, by `time.time`, after which no batch is begun."""
    threads: int = 8
    plain: bool = False
    """Whether to use requests with idempotency keys that follow from the batches' names, so that a
    client that was killed makes the same requests again; else `RemoteEvaluator`."""


def told(verdict: Verdict) -> list[Any]:
    """Return what has to be equal in two verdicts on one kernel."""
    return [verdict.status.value, verdict.trials_passed, verdict.trials, verdict.max_abs_error]


def done_batches(path: Path) -> dict[str, Any]:
    """Return the finished batches of a client by name; a line that a kill has cut is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            found[row["batch"]] = row
    return found


def work(share: Share) -> None:
    """Have all batches of a share judged that are not finished."""
    problem = Problem(**share.problem)
    finished = done_batches(Path(share.out))
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in share.batches:
        if name not in finished:
            left.put(name)
    lock = threading.Lock()

    def run() -> None:
        with RemoteEvaluator(share.url, share.key) as remote, _client(share) as client:
            _connect(remote)
            while time.time() < share.until:
                try:
                    name = left.get_nowait()
                except queue.Empty:
                    return
                rows = share.batches[name]
                jobs = [(Job(problem, Kernel(row[1], row[0])), row[2]) for row in rows]
                started = time.monotonic()
                if share.plain:
                    verdicts = _plainly(client, remote, name, jobs)
                else:
                    futures = [remote.submit(job, seed) for job, seed in jobs]
                    verdicts = [future.result() for future in futures]
                row = {
                    "batch": name,
                    "s": round(time.monotonic() - started, 3),
                    "verdicts": [told(verdict) for verdict in verdicts],
                }
                with lock, open(share.out, "a") as file:
                    file.write(json.dumps(row) + "\n")

    threads = [threading.Thread(target=run) for _ in range(share.threads)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _connect(remote: RemoteEvaluator) -> None:
    """Wait until a server answers, which may be starting again just now."""
    while True:
        try:
            _ = remote.capabilities
            return
        except UsageError:
            time.sleep(_TRY_S)


def _client(share: Share) -> httpx.Client:
    headers = {"Authorization": f"Bearer {share.key}", "Content-Type": "application/json"}
    return httpx.Client(base_url=share.url, headers=headers, timeout=30.0)


def _plainly(
    client: httpx.Client, remote: RemoteEvaluator, name: str, jobs: Sequence[tuple[Job, str]]
) -> list[Verdict]:
    """Return the verdicts of a batch by plain requests, which are made again after failures."""
    can = remote.capabilities
    rows = [
        {
            "problem": {"id": job.problem.id, "digest": job.problem.digest},
            "kernel": {"source": job.kernel.source, "language": job.kernel.language},
            **{"ruleset": can.ruleset.label, "timing": can.timed, "seed": seed},
        }
        for job, seed in jobs
    ]
    body = json.dumps({"jobs": rows})
    while True:
        try:
            path = "/v1/jobs?wait=10"
            answer = client.post(path, content=body, headers={"Idempotency-Key": name})
            if answer.status_code == 200:
                return [Verdict.from_dict(row["verdict"]) for row in answer.json()["jobs"]]
            if answer.status_code not in (202, 408, 429, 500, 502, 503, 504):
                raise RuntimeError(f"batch {name}: {answer.status_code} {answer.text}")
        except httpx.TransportError:
            pass
        time.sleep(_TRY_S)


class Proxy:
    """Forwards connections to a server and cuts some of them at random.

    Args:
        port: Port of the server.
        every_s: Mean seconds between two cuts; 0 for none.
        seed: Seed of the choice.
    """

    def __init__(self, port: int, every_s: float, seed: int) -> None:
        self._port, self._every_s, self._random = port, every_s, random.Random(seed)
        self._open: set[asyncio.StreamWriter] = set()
        self.cuts = 0
        """Number of connections that were cut."""
        self.port = 0
        """Port on which the proxy listens."""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, daemon=True).start()
        self._ready.wait()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        while True:
            await asyncio.sleep(self._random.expovariate(1.0 / (self._every_s or 3600.0)))
            if self._every_s and self._open:
                self._random.choice(list(self._open)).transport.abort()
                self.cuts += 1

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            there = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
        else:
            both = (self._pump(reader, there[1]), self._pump(there[0], writer))
            await asyncio.gather(*both, return_exceptions=True)
        finally:
            self._open.discard(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


if __name__ == "__main__":
    work(Share(**json.loads(Path(sys.argv[1]).read_text())))
