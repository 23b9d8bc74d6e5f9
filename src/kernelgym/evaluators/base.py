"""What every evaluator shares: the base class, and the one for wrappers.

An evaluator implements `capabilities` and `submit`; `EvaluatorBase` derives the rest from them.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Self, TypeVar

from kernelgym.capabilities import Capabilities, EvaluatorStatus
from kernelgym.evaluators.dispatch import as_they_come
from kernelgym.types import Evaluator, Job, Kernel, Problem, Verdict

Ability = TypeVar("Ability")


class EvaluatorBase(abc.ABC):
    """Base class of evaluators; keeps the protocol `kernelgym.types.Evaluator`."""

    @property
    @abc.abstractmethod
    def capabilities(self) -> Capabilities:
        """Abilities of the evaluator as it is now: rules, devices, isolation."""

    @property
    def status(self) -> EvaluatorStatus:
        """Counts that the evaluator has kept so far."""
        return EvaluatorStatus()

    def ability(self, kind: type[Ability]) -> Ability | None:
        """Return an object with an optional ability, such as `Builds`; None without one."""
        return self if isinstance(self, kind) else None

    @abc.abstractmethod
    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of a job's verdict, without waiting for it.

        Args:
            job: The problem and the kernel.
            seed: Hexadecimal secret, as for `evaluate`.
        """

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Judge one kernel and return its verdict.

        Args:
            problem: The problem.
            kernel: The kernel.
            seed: Hexadecimal secret that inputs and weights follow from; empty to draw one. With a
                seed, no cached verdict is returned, and the verdict is not cached.

        Raises:
            UsageError: If the evaluator refuses the job for a reason that is the caller's.
        """
        future = self.submit(Job(problem, kernel), seed)
        try:
            return future.result()
        finally:
            future.cancel()  # after an interrupt; harmless on a finished one

    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        """Judge many kernels; yields (index of the job, verdict) as they come.

        Raises:
            Exception: What `evaluate` would raise for one of the jobs.
        """
        return as_they_come(self.submit, jobs, self.capabilities.workers)

    def evaluate_many(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Judge many kernels; returns one verdict per job, in the order of the jobs."""
        verdicts = dict(self.evaluate_iter(jobs))
        return [verdicts[index] for index in range(len(jobs))]

    def close(self) -> None:  # noqa: B027 - an evaluator without processes has nothing to close
        """Free processes and files. Closing twice is harmless."""

    def __deepcopy__(self, memo: object) -> Self:
        # `gymnasium.make` copies its arguments into the environment's spec; an evaluator is shared.
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EvaluatorWrapper(EvaluatorBase):
    """An evaluator around another one; forwards all that a subclass does not override.

    Args:
        evaluator: The evaluator that judges.
        owns: Whether closing this object closes `evaluator`, too.
    """

    def __init__(self, evaluator: Evaluator, *, owns: bool = False) -> None:
        self.evaluator, self._owns = evaluator, owns

    @property
    def capabilities(self) -> Capabilities:
        """Abilities of the wrapped evaluator."""
        return self.evaluator.capabilities

    @property
    def status(self) -> EvaluatorStatus:
        """Counts of the wrapped evaluator."""
        return self.evaluator.status

    def ability(self, kind: type[Ability]) -> Ability | None:
        """Return this object if it has an ability itself, else the wrapped evaluator's."""
        return self if isinstance(self, kind) else self.evaluator.ability(kind)

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of the wrapped evaluator's verdict."""
        return self.evaluator.submit(job, seed)

    def close(self) -> None:
        """Close the wrapped evaluator, if this object owns it."""
        if self._owns:
            self.evaluator.close()
