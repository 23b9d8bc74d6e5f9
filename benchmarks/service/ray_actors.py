"""The scripted evaluator in the actors of the soak over Ray; actors import it on their nodes."""

from __future__ import annotations

import time
from typing import Any

from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Kernel, Problem, Verdict

VERDICT_S = 0.2


class ScriptedActor(ScriptedEvaluator):
    """Gives each kernel the verdict of its ``# verdict:`` comment, after a while.

    Args:
        device: Device of the actor.
        ruleset: Rules in the verdicts.
        workers: Number of kernels that are judged at the same time.
        timing: Whether the evaluator says that it times kernels.
    """

    def __init__(self, device: str, ruleset: Any, workers: int, timing: bool, **_: Any) -> None:
        super().__init__(None, ruleset, device, workers=workers, timed=timing)

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Return the scripted verdict."""
        time.sleep(VERDICT_S)
        verdict = super().evaluate(problem, kernel, seed=seed)
        self.judged.clear()
        self.seeds.clear()
        return verdict
