"""A verdict service with a scripted evaluator in a process of its own.

As a program: ``serve_process.py STATE PORT SECONDS``, SECONDS for each verdict. It prints its
address.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]


def main(state: str, port: str, seconds: str) -> int:
    from kernelgym.interruption import ended_by_sigterm
    from kernelgym.serve.app import VerdictService
    from kernelgym.serve.keys import KeyRing
    from kernelgym.serve.server import Listening, run_server
    from kernelgym.serve.store import JobStore
    from kernelgym.suites import suite
    from kernelgym.testing import ScriptedEvaluator
    from support import tiny
    from support.served import OneProblem

    script = tiny.judge if "SERVE_PROCESS_TINY" in os.environ else None

    class Slow(ScriptedEvaluator):
        def evaluate(self, problem, kernel, *, seed=""):
            time.sleep(float(seconds))
            return super().evaluate(problem, kernel, seed=seed)

    def make(rules, timing):
        return Slow(script, ruleset=rules, timed=timing)

    suites = [OneProblem(), suite("Synthetic")]
    keys = os.environ.get("SERVE_PROCESS_KEYS")
    ring = KeyRing(Path(keys) if keys else None)
    service = VerdictService(JobStore(Path(state)), Slow(script), make, suites, ring)
    certificate, _, private_key = os.environ.get("SERVE_PROCESS_TLS", "").partition(":")
    listening = Listening(port=int(port), certificate=certificate, private_key=private_key)
    with ended_by_sigterm() as code:
        try:
            run_server(service, listening, lambda url: print(url, flush=True))
        except KeyboardInterrupt:
            return code.value
    return 0


@contextlib.contextmanager
def serving(
    state: Path,
    seconds: float = 0.0,
    port: int = 0,
    keys: Path | None = None,
    tls: tuple[Path, Path] | None = None,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve in a process that is killed at the end of the block; yields it and its address."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    if keys is not None:
        environment["SERVE_PROCESS_KEYS"] = str(keys)
    if tls is not None:
        environment["SERVE_PROCESS_TLS"] = f"{tls[0]}:{tls[1]}"
    program = [sys.executable, __file__, str(state), str(port), str(seconds)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
