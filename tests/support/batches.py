"""An evaluator that remembers its batches, and kernels that say their verdict."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Job, Kernel, Problem, Verdict


def kernel(says: str, number: int = 0) -> Kernel:
    return Kernel(f"NUMBER = {number}\n# verdict: {says}\n", "cpp")


class Batches(ScriptedEvaluator):
    """Remembers the size of every batch; may be held until it is let go."""

    def __init__(self, held: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.batches: list[int] = []
        self.begun, self.go = threading.Event(), threading.Event()
        if not held:
            self.go.set()

    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        jobs = list(jobs)
        self.batches.append(len(jobs))
        self.begun.set()
        assert self.go.wait(30)
        for index, job in reversed(list(enumerate(jobs))):  # in an order of its own
            yield index, super().evaluate(job.problem, job.kernel)

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        return self.evaluate_many([Job(problem, kernel)])[0]
