"""Verdicts of a build, kept in a file while it runs.

Contract: `Judged` asks an evaluator for verdicts of (problem, kernel) and appends each to a JSONL
file as it comes, so that a build that is killed judges nothing twice. Kernels that the ruleset
refuses are not run. What a deadline leaves out has no verdict; neither has what the judge failed
on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelgym.episodes.episode import refusal
from kernelgym.records.jsonlines import append_line, read_lines
from kernelgym.retrieval.entry import Entry
from kernelgym.types import Evaluator, Job, Kernel, Problem, Verdict

__all__ = ["Judged", "Said", "problem_of"]

_AT_ONCE = 8
"""Kernels that are given to the judge between two looks at the clock, per worker."""


@dataclass(frozen=True, slots=True)
class Said:
    """What is kept of a verdict."""

    status: str
    speed: tuple[float, ...] = ()
    """Speedup and its interval's ends; empty if the kernel was not timed."""
    device: str = ""
    ruleset: str = ""


def problem_of(entry: Entry) -> Problem:
    """Return the problem of an entry's own reference."""
    return Problem(entry.problem_id or entry.id, "Index", 0, entry.name, entry.reference)


class Judged:
    """Verdicts of an evaluator, kept in a file.

    Args:
        evaluator: Judges; never closed here.
        path: The file; made if it is not there.
        minutes: After so many, nothing more is judged; None for no limit.
        clock: Gives seconds.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        path: Path,
        minutes: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._evaluator, self._path = evaluator, path
        self._clock = clock
        self._until = None if minutes is None else clock() + 60.0 * minutes
        self._timed = bool(getattr(evaluator, "timing", True))
        self._known: dict[str, Said] = {}
        if path.exists():
            for _, row in read_lines(path):
                self._known[row["key"]] = Said(
                    row["status"], tuple(row["speed"]), row["device"], row["ruleset"]
                )

    @property
    def late(self) -> bool:
        """True once the time is over."""
        return self._until is not None and self._clock() >= self._until

    def of(self, problem: Problem, kernel: Kernel) -> Said | None:
        """Return what is known of a kernel on a problem, or None."""
        return self._known.get(self._key(problem, kernel))

    def judge(
        self, jobs: Sequence[Job], advance: Callable[[], None] = lambda: None
    ) -> Iterable[Job]:
        """Judge what is not known; returns jobs without a verdict.

        Args:
            jobs: What is judged, the most wanted first.
            advance: Called once per job that has a verdict.
        """
        todo: list[Job] = []
        for job in {self._key(job.problem, job.kernel): job for job in jobs}.values():
            if self.of(job.problem, job.kernel) is not None:
                advance()
            elif (refused := refusal(job.problem, job.kernel, self._evaluator.ruleset)) is not None:
                self._keep(job, refused)
                advance()
            else:
                todo.append(job)
        size = _AT_ONCE * max(1, int(getattr(self._evaluator, "workers", 1)))
        for start in range(0, len(todo), size):
            batch = todo[start : start + size]
            if self.late:
                break
            for index, verdict in self._evaluator.evaluate_iter(batch):
                if verdict.valid:
                    self._keep(batch[index], verdict)
                    advance()
        return [job for job in jobs if self.of(job.problem, job.kernel) is None]

    def _keep(self, job: Job, verdict: Verdict) -> None:
        timing = verdict.timing
        speed = (
            (timing.speedup, timing.speedup_low, timing.speedup_high)
            if timing is not None and timing.speedup_high
            else ()
        )
        device = self._evaluator.device.partition(":")[0]
        said = Said(verdict.status.value, speed, device, self._evaluator.ruleset.label)
        key = self._key(job.problem, job.kernel)
        self._known[key] = said
        append_line(
            self._path,
            {
                "key": key,
                "status": said.status,
                "speed": list(speed),
                "device": said.device,
                "ruleset": said.ruleset,
            },
        )

    def _key(self, problem: Problem, kernel: Kernel) -> str:
        evaluator = self._evaluator
        parts = (problem.digest, kernel.digest, evaluator.ruleset.label, evaluator.device)
        return " ".join((*parts, "timed" if self._timed else "untimed"))
