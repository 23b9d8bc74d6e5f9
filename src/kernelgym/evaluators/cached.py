"""`CachedEvaluator`: caches verdicts on disk, so that a kernel is judged only once.

A verdict is cached under a digest of all that decides it: the problem's source, the kernel's source
and language, every field of the ruleset, the kind of device, and the tools' versions (see
`kernelgym.judge.provenance`). The kernel's source counts character by character, since findings
quote lines and a model may be trained on comments.

Contract:

- a thread or batch that asks for a verdict that this process is judging waits for it. After a
  `timeout` it gets that verdict, too; after an `unavailable` it judges the kernel itself;
- a cached verdict is returned as stored, except `device` (this evaluator's name for the device) and
  `wall_s` (the time of this call).

Not cached:

- `unavailable`, which says nothing about the kernel;
- verdicts that depend on the machine's load: `timeout`, a build that ran out of time or memory, a
  correct kernel that could not be timed.

Does not cover:

- two processes: both may judge the same kernel at the same time, and the later verdict stays;
- chance: under secret seeds, a cached verdict stands for one drawn seed, and no other is drawn. A
  kernel that is wrong in one of ten verdicts keeps the verdict that it got first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from kernelgym.errors import UsageError
from kernelgym.evaluators.cache_batch import Batch, Flights
from kernelgym.evaluators.cache_store import VerdictStore
from kernelgym.judge.compiling.compiler_process import FAILED, is_transient
from kernelgym.judge.provenance import provenance
from kernelgym.languages import LANGUAGES
from kernelgym.paths import cache_folder
from kernelgym.rulesets import Ruleset
from kernelgym.types import Evaluator, Job, Kernel, Problem, Status, Verdict
from kernelgym.verdict import HOST_BUSY

__all__ = ["CachedEvaluator", "is_kept"]

_FORMAT = "1"  # raise it when the cached data, or the facts that decide a verdict, change
_LIMIT_BYTES = 1 << 30


def is_kept(verdict: Verdict, kernel: Kernel, times: bool) -> bool:
    """Return True if judging again should give the same verdict.

    Args:
        verdict: The verdict.
        kernel: The kernel that was judged.
        times: Whether its evaluator times correct kernels. A correct kernel that was not timed
            (the device was busy, no baseline was prepared) may then be timed another time.
    """
    if verdict.status in (Status.UNAVAILABLE, Status.TIMEOUT):
        return False
    if verdict.status is Status.COMPILE_ERROR:
        # `is_transient` expects the prefix, which the verdict's log no longer has.
        return not any(is_transient(f"{FAILED}{text}") for text in (verdict.log, verdict.message))
    language = LANGUAGES.get(kernel.language)
    if any(found.code == HOST_BUSY for found in verdict.findings):
        return False  # a quiet host gives a narrower interval
    timeable = times and language is not None and language.is_timed(verdict.device)
    return not (verdict.correct and timeable and not verdict.timed)


class CachedEvaluator:
    """Caches another evaluator's verdicts on disk.

    Several threads may use one object, and any number of processes one folder.

    Args:
        evaluator: Judges kernels without a cached verdict.
        folder: Folder for verdicts; by default ``verdicts`` in the judge's cache folder.
        limit_bytes: Total size above which the least recently used verdicts are removed.
        judged_by: The device's kind and the tools' versions, on which verdicts depend besides
            problem, kernel and ruleset. The default describes this machine, which is right for a
            `LocalEvaluator`. An evaluator that judges on another machine needs that machine's.
        owns: Whether closing this object closes `evaluator`, too.

    Raises:
        UsageError: If `judged_by` is not given and this machine lacks the evaluator's device, if
            the limit is no positive number, or if the folder cannot be created.
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
        # Optional attributes of an evaluator that decide its verdicts, and so belong to the key.
        self._times = getattr(evaluator, "timing", None) is True
        self._traits = [str(getattr(evaluator, name, "")) for name in ("timing", "isolation")]
        self._flights = Flights()
        self._count_lock = threading.Lock()
        self.hits = 0
        """Number of verdicts returned without judging the kernel."""
        self.misses = 0
        """Number of verdicts that the evaluator judged."""

    @property
    def device(self) -> str:
        """The device kernels run on."""
        return self._inner.device

    @property
    def ruleset(self) -> Ruleset:
        """The ruleset that its verdicts follow."""
        return self._inner.ruleset

    @property
    def timing(self) -> bool:
        """Whether the evaluator says that it times correct kernels."""
        return self._times

    @property
    def health(self) -> tuple[Any, ...]:
        """The `DeviceHealth` of the evaluator's devices, if it has them."""
        return tuple(getattr(self._inner, "health", ()))

    @property
    def memory_bytes(self) -> int | None:
        """The evaluator's memory budget; None if it names none."""
        return getattr(self._inner, "memory_bytes", None)

    def key(self, problem: Problem, kernel: Kernel) -> str:
        """Return the key of a kernel's verdict: 64 hexadecimal digits."""
        rules = json.dumps(dataclasses.asdict(self.ruleset), sort_keys=True)
        parts = (_FORMAT, problem.source, kernel.language, kernel.source, rules)
        # JSON, so that no two different lists of parts give the same text.
        text = json.dumps([*parts, *self._traits, self._decides])
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Return the cached verdict, or judge the kernel and cache its verdict.

        Args:
            problem: The problem.
            kernel: The kernel.
            seed: With one, the kernel is judged now, and the cache is neither read nor written.

        Raises:
            UsageError: If the evaluator raises it.
        """
        if seed:
            return self._inner.evaluate(problem, kernel, seed=seed)
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
        """Judge many kernels; yields cached verdicts at once, others when judged.

        Another thread goes through `jobs`, ahead of the yielded verdicts by a bounded number. An
        error that the evaluator raises is raised here.
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
        """Judge many kernels; return verdicts in the order of the jobs."""
        verdicts = dict(self.evaluate_iter(jobs))
        return [verdicts[index] for index in range(len(jobs))]

    def close(self) -> None:
        """Close the wrapped evaluator, if this object owns it; keep cached verdicts."""
        if self._owns:
            self._inner.close()

    def _given(self, verdict: Verdict, started: float) -> Verdict:
        """Return a cached or shared verdict with this call's device and time."""
        with self._count_lock:
            self.hits += 1
        device = self.device if verdict.device else ""
        return dataclasses.replace(verdict, device=device, wall_s=time.monotonic() - started)

    def _judged(self, key: str, kernel: Kernel, verdict: Verdict) -> None:
        with self._count_lock:
            self.misses += 1
        if is_kept(verdict, kernel, self._times):
            # If the disk is full, the verdict is not cached and the kernel is judged again later.
            with contextlib.suppress(OSError):
                self._store.file(key, verdict)

    def __deepcopy__(self, memo: object) -> Self:
        # `gymnasium.make` copies its arguments into the environment's spec.
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
