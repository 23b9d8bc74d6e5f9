"""Verdicts on the kernels of an index, kept in memory while the index is built.

Contract: `BuildVerdicts` asks an evaluator for verdicts of (problem, kernel), each once. Kernels
that the ruleset refuses are not run. A kernel that no time was left for has no verdict; neither has
one on which the judge itself failed. A build that was killed and is started again finds its
verdicts in the evaluator's cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kernelgym.episodes.episode import refusal
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.types import Evaluator, Job, Kernel, Problem, Verdict

_AT_ONCE = 8
"""Number of kernels per worker that are sent to the judge between two checks of the time limit."""


def problem_of(entry: IndexEntry) -> Problem:
    """Return the problem that an index entry's own reference defines."""
    return Problem(entry.problem_id or entry.id, "Index", 0, entry.name, entry.reference)


class BuildVerdicts:
    """Verdicts of an evaluator on pairs of a problem and a kernel.

    Args:
        evaluator: Judges; never closed here.
        minutes: Minutes after which nothing more is judged; None for no limit.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        minutes: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._evaluator, self._clock = evaluator, clock
        self._until = None if minutes is None else clock() + 60.0 * minutes
        self._known: dict[tuple[str, str], Verdict] = {}

    @property
    def late(self) -> bool:
        """True once the time limit has passed."""
        return self._until is not None and self._clock() >= self._until

    def of(self, problem: Problem, kernel: Kernel) -> Verdict | None:
        """Return the verdict on a kernel for a problem; None if the kernel was not judged."""
        return self._known.get((problem.digest, kernel.digest))

    def judge(self, jobs: Sequence[Job], advance: Callable[[], None] = lambda: None) -> None:
        """Judge the jobs that have no verdict yet, until the time limit.

        Args:
            jobs: Kernels to judge, the most wanted first.
            advance: Function that is called after each verdict.
        """
        todo: list[Job] = []
        for job in {(job.problem.digest, job.kernel.digest): job for job in jobs}.values():
            if self.of(job.problem, job.kernel) is not None:
                continue
            refused = refusal(job.problem, job.kernel, self._evaluator.capabilities.ruleset)
            if refused is not None:
                self._keep(job, refused, advance)
            else:
                todo.append(job)
        size = _AT_ONCE * self._evaluator.capabilities.workers
        for start in range(0, len(todo), size):
            if self.late:
                break
            batch = todo[start : start + size]
            for index, verdict in self._evaluator.evaluate_iter(batch):
                if verdict.valid:
                    self._keep(batch[index], verdict, advance)

    def _keep(self, job: Job, verdict: Verdict, advance: Callable[[], None]) -> None:
        self._known[job.problem.digest, job.kernel.digest] = verdict
        advance()
