"""Servers for the benchmarks of the verdict service, each in a process of its own.

`real` starts ``kernelgym serve``. `scripted` starts a service whose verdicts come from a script, as
``python -m benchmarks.service.servers STATE PORT KEYS SECONDS WORKERS``: it judges nothing, so what
is measured is the service.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from kernelgym.interruption import ended_by_sigterm
from kernelgym.serve.app import VerdictService
from kernelgym.serve.keys import KeyRing, Tenant, add_key
from kernelgym.serve.server import Listening, run_server
from kernelgym.serve.store import JobStore
from kernelgym.suites import suite
from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Evaluator

_START_S = 120.0


def make_keys(path: Path, *names: str) -> dict[str, str]:
    """Write a file of keys without limits that a benchmark would meet; return the keys by name."""
    wide: Any = {"roles": ("judge", "admin"), "per_minute": 10**9, "queued": 10**6}
    tenants = [Tenant(name=name, **wide) for name in names]
    return {tenant.name: add_key(path, tenant) for tenant in tenants}


def wait_for_queue(url: str, key: str, least: int) -> None:
    """Wait until a number of jobs of all keys are queued at a server; the key is an admin's."""
    headers, queued = {"Authorization": f"Bearer {key}"}, 0.0
    while queued < least:
        time.sleep(0.05)
        text = httpx.get(f"{url}/metrics", headers=headers, timeout=60.0).text
        queued = sum(float(n) for n in re.findall(r'state="queued"} (\S+)', text))


@contextlib.contextmanager
def real(*arguments: str, port: int = 0) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run ``kernelgym serve`` during the block; yields the process and the server's address."""
    command = [sys.executable, "-m", "kernelgym", "serve", "--port", str(port), *arguments]
    with running(command) as found:
        yield found


@contextlib.contextmanager
def scripted(
    state: Path, keys: Path | None = None, seconds: float = 0.0, workers: int = 2, port: int = 0
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a scripted service during the block; yields the process and the server's address.

    Args:
        state: State folder.
        keys: File of the keys; None for none.
        seconds: Seconds that a verdict takes.
        workers: Number of verdicts at the same time.
        port: Port; 0 for any that is free.
    """
    settings = (str(state), str(port), str(keys or ""), str(seconds), str(workers))
    with running([sys.executable, "-m", "benchmarks.service.servers", *settings]) as found:
        yield found


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a server's command during the block; yields the process and the server's address."""
    # A pipe that is not read would stop the server.
    with tempfile.NamedTemporaryFile("a") as log:
        process = subprocess.Popen(command, stderr=log)
        try:
            yield process, _address(process, Path(log.name))
        finally:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the address that a server says once it listens."""
    end, said = time.monotonic() + _START_S, ""
    while time.monotonic() < end and process.poll() is None:
        said = log.read_text()
        if (found := re.search(r"serving verdicts at (\S+)\n", said)) is not None:
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {said}")


class _Slow(ScriptedEvaluator):
    seconds = 0.0

    def evaluate(self, problem, kernel, *, seed=""):  # type: ignore[no-untyped-def]
        time.sleep(self.seconds)
        found = super().evaluate(problem, kernel, seed=seed)
        self.judged.clear()
        self.seeds.clear()
        return found


def serve(evaluator: Evaluator, state: str, port: str, keys: str) -> int:
    """Serve an evaluator's verdicts until a signal; return the exit code."""
    ring = KeyRing(Path(keys) if keys else None)
    service = VerdictService(JobStore(Path(state)), evaluator, None, [suite("Synthetic")], ring)
    with ended_by_sigterm() as code:
        try:
            run_server(service, Listening(port=int(port)), _say)
        except KeyboardInterrupt:
            return code.value
    return 0


def _say(url: str) -> None:
    print(f"serving verdicts at {url}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    state, port, keys, seconds, workers = sys.argv[1:]
    slow = _Slow(workers=int(workers))
    slow.seconds = float(seconds)
    raise SystemExit(serve(slow, state, port, keys))
