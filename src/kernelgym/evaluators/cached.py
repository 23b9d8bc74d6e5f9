"""`CachedEvaluator`: judges a kernel once, however often its verdict is asked for.

A verdict is kept on disk under a digest of all that decides it: the problem's source, the kernel's
exact source and language, every field of the ruleset, the kind of device, and the tools' versions
(see `kernelgym.judge.provenance`). Exact, since lines are quoted in findings and comments may be
what a model is trained on. A thread or batch that asks while this process judges the same waits
for that verdict. Two processes may judge the same kernel at the same time; the later verdict stays.

Not kept: what says nothing about the kernel (`unavailable`), what the machine's load decides
(`timeout`, a build for want of time or memory, a timing that was not possible). In-flight
duplicates share a timeout all the same, and judge for themselves after an `unavailable`.

A verdict from the cache is the kept one, but for `device` (this evaluator's name for it) and
`wall_s` (what this call took). Under secret seeds a kept verdict is one draw of the seed that is
not drawn again: a kernel that is wrong once in ten verdicts stays what it was found to be first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from kernelgym.errors import UsageError
from kernelgym.evaluators.cache_batch import Batch, Flights
from kernelgym.evaluators.cache_store import VerdictStore
from kernelgym.judge.compiling.compiler_process import FAILED, is_transient
from kernelgym.judge.provenance import provenance
from kernelgym.languages import LANGUAGES
from kernelgym.paths import cache_folder
from kernelgym.rulesets import Ruleset
from kernelgym.types import Evaluator, Job, Kernel, Problem, Status, Verdict

__all__ = ["CachedEvaluator", "is_kept"]

_FORMAT = "1"  # raise it when what is kept, or what decides it, changes
_LIMIT_BYTES = 1 << 30


def is_kept(verdict: Verdict, kernel: Kernel, times: bool) -> bool:
    """Return True if a verdict would be the same another time, as far as one can tell.

    Args:
        verdict: The verdict.
        kernel: The kernel it is about.
        times: Whether its evaluator times correct kernels; then one that could have been timed
            and was not (the device was busy, no baseline was prepared) may be another time.
    """
    if verdict.status in (Status.UNAVAILABLE, Status.TIMEOUT):
        return False
    if verdict.status is Status.COMPILE_ERROR:
        # The mark in front was taken off when the log became the verdict's.
        return not any(is_transient(f"{FAILED}{text}") for text in (verdict.log, verdict.message))
    language = LANGUAGES.get(kernel.language)
    timeable = times and language is not None and language.is_timed(verdict.device)
    return not (verdict.correct and timeable and not verdict.timed)


class CachedEvaluator:
    """Keeps another evaluator's verdicts on disk.

    Safe to use from several threads, and with one folder from any number of processes.

    Args:
        evaluator: Judges what is not kept.
        folder: Where verdicts are kept; by default ``verdicts`` in the judge's cache folder.
        limit_bytes: Size of all verdicts above which those used longest ago go.
        judged_by: What verdicts depend on beside problem, kernel and ruleset: the device's kind
            and the tools' versions. By default this machine's, which is right for a
            `LocalEvaluator`; an evaluator that judges elsewhere needs its own.
        owns: Whether closing this one closes `evaluator`, too.

    Raises:
        UsageError: If `judged_by` is not given and this machine lacks the evaluator's device, or
            if the limit is no positive number.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        folder: str | Path | None = None,
        *,
        limit_bytes: int = _LIMIT_BYTES,
        judged_by: Sequence[str] | None = None,
        owns: bool = False,
    ) -> None:
        if limit_bytes < 1:
            raise UsageError(f"limit_bytes must be at least 1, got {limit_bytes}")
        self._inner, self._owns = evaluator, owns
        self._decides = tuple(provenance(evaluator.device) if judged_by is None else judged_by)
        where = cache_folder() / "verdicts" if folder is None else Path(folder).absolute()
        try:
            self._store = VerdictStore(where, limit_bytes)
        except OSError as error:
            raise UsageError(f"verdicts cannot be kept in {str(where)!r}: {error}") from None
        # Evaluators need not say these; what they say of themselves decides their verdicts.
        self._times = getattr(evaluator, "timing", None) is True
        self._traits = [str(getattr(evaluator, name, "")) for name in ("timing", "isolation")]
        self._flights = Flights()
        self._count_lock = threading.Lock()
        self.hits = 0
        """Verdicts this object has given without having them judged."""
        self.misses = 0
        """Verdicts it has had judged."""

    @property
    def device(self) -> str:
        """The device kernels run on."""
        return self._inner.device

    @property
    def ruleset(self) -> Ruleset:
        """The rules of its verdicts."""
        return self._inner.ruleset

    @property
    def timing(self) -> bool:
        """Whether the evaluator says that it times correct kernels."""
        return self._times

    def key(self, problem: Problem, kernel: Kernel) -> str:
        """Return the digest that a kernel's verdict is kept under: 64 hexadecimal digits."""
        rules = json.dumps(dataclasses.asdict(self.ruleset), sort_keys=True)
        parts = (_FORMAT, problem.source, kernel.language, kernel.source, rules)
        # JSON, so that no two lists of parts make one text.
        text = json.dumps([*parts, *self._traits, self._decides])
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Return the kept verdict, or judge and keep it.

        Args:
            problem: The problem.
            kernel: The kernel.
            seed: `Verdict.seed` of an earlier verdict, to repeat it on the same inputs; such a
                verdict is neither looked for nor kept.

        Raises:
            UsageError: Whatever the evaluator refuses.
        """
        if seed:
            repeat: Callable[..., Verdict] = self._inner.evaluate
            return repeat(problem, kernel, seed=seed)
        started = time.monotonic()
        key = self.key(problem, kernel)
        flight, ours = self._flights.join(key)
        if not ours and (shared := flight.result()) is not None:
            return self._given(shared, started)
        landed: Verdict | None = None
        try:
            if ours and (kept := self._store.find(key)) is not None:
                landed = kept
                return self._given(kept, started)
            verdict = self._inner.evaluate(problem, kernel)
            self._judged(key, kernel, verdict)
            landed = verdict if verdict.valid else None
            return verdict
        finally:
            if ours:
                self._flights.land(key, landed)

    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        """Judge many; yields kept verdicts at once, the others as they come.

        `jobs` is gone through in another thread, ahead of what has been yielded by a bounded
        number of verdicts. An error that the evaluator raises is raised here.
        """
        batch = Batch(
            jobs,
            self._flights,
            evaluate_iter=self._inner.evaluate_iter,
            key=lambda job: self.key(job.problem, job.kernel),
            find=self._store.find,
            given=self._given,
            judged=self._judged,
        )
        return batch.stream()

    def evaluate_many(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Judge many; verdicts in the order of the jobs."""
        verdicts = dict(self.evaluate_iter(jobs))
        return [verdicts[index] for index in range(len(jobs))]

    def close(self) -> None:
        """Close the evaluator that it was given, if it owns it; verdicts stay kept."""
        if self._owns:
            self._inner.close()

    def _given(self, verdict: Verdict, started: float) -> Verdict:
        """Return a verdict that was not judged for its asker, as that asker's."""
        with self._count_lock:
            self.hits += 1
        device = self.device if verdict.device else ""
        return dataclasses.replace(verdict, device=device, wall_s=time.monotonic() - started)

    def _judged(self, key: str, kernel: Kernel, verdict: Verdict) -> None:
        with self._count_lock:
            self.misses += 1
        if is_kept(verdict, kernel, self._times):
            # A full disk costs the next asker time, and nothing else.
            with contextlib.suppress(OSError):
                self._store.file(key, verdict)

    def __deepcopy__(self, memo: object) -> Self:
        # `gymnasium.make` copies its arguments into the environment's spec.
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
