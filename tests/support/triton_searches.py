"""Searches of Triton kernels on the CPU: judged by the interpreter, timed by a table.

The interpreter judges whether kernels are correct. It cannot time them, so a table of texts says
what a kernel is worth.
"""

from __future__ import annotations

import re
from concurrent.futures import Future

from kernelgym.evaluators.base import EvaluatorBase
from kernelgym.testing import verdict
from kernelgym.types import Capabilities, Evaluator, Job, Kernel, Verdict


class TimedByTable(EvaluatorBase):
    """Judges by another evaluator, and times correct kernels by their texts.

    Args:
        judge: The evaluator that says whether a kernel is correct; None takes all for correct.
    """

    def __init__(self, judge: Evaluator | None = None) -> None:
        self._judge = judge
        self.judged: list[Kernel] = []

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of a GPU that the table stands for."""
        from kernelgym.testing import ScriptedEvaluator

        return ScriptedEvaluator().capabilities

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of a verdict, which is there at once."""
        self.judged.append(job.kernel)
        found: Future[Verdict] = Future()
        if self._judge is not None:
            real = self._judge.evaluate(job.problem, job.kernel, seed=seed)
            if not real.correct:
                found.set_result(real)
                return found
        found.set_result(verdict("correct", speedup=worth(job.kernel.source)))
        return found

    def close(self) -> None:
        """Leave the other evaluator open."""


def worth(source: str) -> float:
    """Return a kernel's speed: larger blocks, single passes and groups are faster."""
    found = 0.05
    for size in map(int, re.findall(r"BLOCK(?:_[MNK])?=(\d+)", source)):
        found *= min(size, 128) / 16
    warps = re.search(r"num_warps=(\d+)", source)
    found *= 1.5 if warps and int(warps[1]) == 8 else 1.0
    found *= 40.0 if "next_power_of_2" in source else 1.0
    return found * (1.2 if "swizzle2d" in source else 1.0)
