"""A service whose scripted evaluator has worker processes that can be killed.

Run ``python -m benchmarks.service.scripted_workers STATE PORT KEYS WORKERS SECONDS``. The workers
are in the judge's own pool, which replaces those that die and has their kernels judged once more. A
verdict is what the kernel's ``# verdict:`` comment says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import Future
from typing import Any

from benchmarks.service.servers import serve
from kernelgym.capabilities import Capabilities, EvaluatorStatus
from kernelgym.evaluators.base import EvaluatorBase
from kernelgym.evaluators.dispatch import Dispatcher
from kernelgym.judge.outcome import Circumstances, verdict_of_failures
from kernelgym.judge.pool import WorkerPool
from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Job, Verdict

WORKER = """
import sys, time
for line in sys.stdin:
    time.sleep(float(sys.argv[1]))
    print(line, end="", flush=True)
"""
"""Program of a worker: it gives every line back after a while."""


class ScriptedWorker:
    """A worker process that repeats what it is told."""

    def __init__(self, seconds: float) -> None:
        command = [sys.executable, "-S", "-c", WORKER, str(seconds)]
        pipe: Any = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def judge(self, verdict: Verdict) -> Verdict:
        """Return a verdict that has been to the worker and back.

        Raises:
            OSError: If the worker is gone; or EOFError.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(verdict.to_dict()) + "\n")
        self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise EOFError(f"the worker exited with {self._process.wait()}")
        return Verdict.from_dict(json.loads(line))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


class ScriptedPool(EvaluatorBase):
    """Scripted evaluator with a pool of worker processes.

    Args:
        workers: Number of them.
        seconds: Seconds that each takes for a verdict.
    """

    def __init__(self, workers: int, seconds: float) -> None:
        self._script = ScriptedEvaluator(workers=workers)
        start: Any = lambda _: ScriptedWorker(seconds)  # noqa: E731
        self._pool = WorkerPool(["cpu"], workers, start)
        self._dispatcher = Dispatcher(self._judge, self._pool.places())

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of a scripted evaluator."""
        return self._script.capabilities

    @property
    def status(self) -> EvaluatorStatus:
        """Counts of the pool."""
        return EvaluatorStatus(self._pool.health())

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of the scripted verdict."""
        return self._dispatcher.submit(job, seed)

    def _judge(self, job: Job, seed: str, place: int) -> Verdict:
        verdict = self._script.evaluate(job.problem, job.kernel, seed=seed)
        self._script.judged.clear()
        self._script.seeds.clear()
        ask: Any = lambda worker: worker.judge(verdict)  # noqa: E731
        answer = self._pool.judge(ask, place=place)
        if isinstance(answer, Verdict):
            return answer
        where = Circumstances("cpu", ruleset=self.capabilities.ruleset.label)
        return verdict_of_failures(answer, where, False)

    def close(self) -> None:
        """End the workers."""
        self._pool.dismiss()


if __name__ == "__main__":
    state, port, keys, workers, seconds = sys.argv[1:]
    evaluator = ScriptedPool(int(workers), float(seconds))
    code = serve(evaluator, state, port, keys)
    evaluator.close()
    os._exit(code)
