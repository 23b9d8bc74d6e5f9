"""Servers for the benchmarks of the verdict service, each in a process of its own.

`real` starts ``kernelgym serve``. `scripted` starts a service whose verdicts come from a script, as
``python -m benchmarks.service.servers STATE PORT KEYS SECONDS WORKERS``: it judges nothing, so what
is measured is the service.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelgym.interruption import ended_by_sigterm
from kernelgym.serve.app import VerdictService
from kernelgym.serve.keys import KeyRing, Tenant, add_key
from kernelgym.serve.server import Listening, run_server
from kernelgym.serve.store import JobStore
from kernelgym.suites import suite
from kernelgym.testing import ScriptedEvaluator

_START_S = 120.0


def make_keys(path: Path, *names: str) -> dict[str, str]:
    """Write a file of keys without limits that a benchmark would meet; return the keys by name."""
    tenants = [Tenant(name=name, per_minute=10**9, queued=10**6) for name in names]
    return {tenant.name: add_key(path, tenant) for tenant in tenants}


@contextlib.contextmanager
def real(*arguments: str, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``kernelgym serve`` during the block; yields the process and the server's address."""
    command = [sys.executable, "-m", "kernelgym", "serve", "--port", str(port), *arguments]
    with _running(command) as found:
        yield found


@contextlib.contextmanager
def scripted(
    state: Path, keys: Path | None = None, seconds: float = 0.0, workers: int = 2, port: int = 0
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a scripted service during the block; yields the process and the server's address.

    Args:
        state: State folder.
        keys: File of the keys; None for none.
        seconds: Seconds that a verdict takes.
        workers: Number of verdicts at the same time.
        port: Port; 0 for any that is free.
    """
    settings = (str(state), str(port), str(keys or ""), str(seconds), str(workers))
    with _running([sys.executable, "-m", "benchmarks.service.servers", *settings]) as found:
        yield found


@contextlib.contextmanager
def _running(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        yield process, _address(process)
    finally:
        process.kill()
        process.communicate()


def _address(process: subprocess.Popen[str]) -> str:
    """Return the address that a server says once it listens."""
    assert process.stderr is not None
    end, said = time.monotonic() + _START_S, ""
    while time.monotonic() < end and (line := process.stderr.readline()):
        said += line
        if "serving verdicts at " in line:
            return line.split()[-1]
    raise RuntimeError(f"the server did not start: {said}")


class _Slow(ScriptedEvaluator):
    seconds = 0.0

    def evaluate(self, problem, kernel, *, seed=""):  # type: ignore[no-untyped-def]
        time.sleep(self.seconds)
        found = super().evaluate(problem, kernel, seed=seed)
        self.judged.clear()
        self.seeds.clear()
        return found


def _serve(state: str, port: str, keys: str, seconds: str, workers: str) -> int:
    evaluator = _Slow(workers=int(workers))
    evaluator.seconds = float(seconds)
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
    raise SystemExit(_serve(*sys.argv[1:]))
