"""An evaluator that can be held, and kernels that say their verdict."""

from __future__ import annotations

import threading
from typing import Any

from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Kernel, Problem, Verdict


def kernel(says: str, number: int = 0) -> Kernel:
    return Kernel(f"NUMBER = {number}\n# verdict: {says}\n", "cpp")


class Held(ScriptedEvaluator):
    """Counts the kernels that it judges at the same time; may be held until it is let go."""

    def __init__(self, *script: Any, held: bool = False, **options: Any) -> None:
        super().__init__(*script, **options)
        self.begun, self.go = threading.Event(), threading.Event()
        self.at_once = self.most_at_once = 0
        if not held:
            self.go.set()

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        self.begun.set()
        assert self.go.wait(30)
        found = super().evaluate(problem, kernel, seed=seed)
        with self._lock:
            self.at_once -= 1
        return found
