"""`CountingEvaluator`: adds hardware counters to the verdicts on correct kernels.

For feedback at the level ``profile``: what models are told of a kernel then includes what limits
it. Contract: a verdict is the wrapped evaluator's, with `Verdict.counters` set if the kernel is
correct. A kernel is profiled once, in whichever verdict is the first.
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future

from kernelgym.counters import Counters
from kernelgym.errors import UsageError
from kernelgym.evaluators.abilities import Profiles
from kernelgym.evaluators.base import EvaluatorWrapper
from kernelgym.evaluators.dispatch import Dispatcher
from kernelgym.types import Evaluator, Job, Verdict


class CountingEvaluator(EvaluatorWrapper):
    """Adds hardware counters to an evaluator's verdicts.

    Args:
        evaluator: The evaluator that judges.
        owns: Whether closing this object closes `evaluator`, too.

    Raises:
        UsageError: If the evaluator cannot read counters.
    """

    def __init__(self, evaluator: Evaluator, *, owns: bool = False) -> None:
        super().__init__(evaluator, owns=owns)
        profiles = evaluator.ability(Profiles)
        if profiles is None:
            raise UsageError(
                f"a {type(evaluator).__name__} reads no hardware counters; leave profile out, or "
                "judge by a LocalEvaluator on a GPU"
            )
        self._profiles = profiles
        self._known: dict[tuple[str, str], Counters] = {}
        self._dispatcher = Dispatcher(self._judge, [""] * self.capabilities.workers)

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of a verdict with counters."""
        return self._dispatcher.submit(job, seed)

    def _judge(self, job: Job, seed: str, _: int) -> Verdict:
        found = self.evaluator.evaluate(job.problem, job.kernel, seed=seed)
        if not found.correct:
            return found
        key = job.problem.digest, job.kernel.digest
        if key not in self._known:
            try:
                self._known[key] = self._profiles.profile(job.problem, job.kernel)
            except UsageError as error:  # a verdict from a cache: the kernel was not run here
                return dataclasses.replace(found, counters=Counters("failed", message=str(error)))
        return dataclasses.replace(found, counters=self._known[key])
