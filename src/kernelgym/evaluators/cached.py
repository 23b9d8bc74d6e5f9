"""`CachedEvaluator`: caches verdicts on disk, so that a kernel is judged only once.

A verdict is cached under a digest of all that decides it: the problem's source, the kernel's source
and language, every field of the ruleset, and the evaluator's provenance (kind of device, versions
of the tools). The kernel's source counts character by character, since findings quote lines and a
model may be trained on comments.

Contract: that of `kernelgym.evaluators.kept`, and a cached verdict is returned as stored, except
`device` (this evaluator's name for the device) and `wall_s` (the time of this call).

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
import time
from pathlib import Path

from kernelgym.build_log import is_transient_build
from kernelgym.errors import UsageError
from kernelgym.evaluators.cache_store import VerdictStore
from kernelgym.evaluators.kept import KeptVerdicts
from kernelgym.languages import LANGUAGES
from kernelgym.paths import cache_folder
from kernelgym.types import Evaluator, Job, Kernel, Status, Verdict
from kernelgym.verdict import HOST_BUSY

_FORMAT = "1"  # raise it when the cached data, or the facts that decide a verdict, change
_LIMIT_BYTES = 1 << 30


def is_kept(verdict: Verdict, kernel: Kernel, timed: bool) -> bool:
    """Return True if judging again should give the same verdict.

    Args:
        verdict: The verdict.
        kernel: The kernel that was judged.
        timed: Whether its evaluator times correct kernels. A correct kernel that was not timed
            (the device was busy, no baseline was prepared) may then be timed another time.
    """
    if verdict.status in (Status.UNAVAILABLE, Status.TIMEOUT):
        return False
    if verdict.status is Status.COMPILE_ERROR:
        return not (is_transient_build(verdict.log) or is_transient_build(verdict.message))
    language = LANGUAGES.get(kernel.language)
    if any(found.code == HOST_BUSY for found in verdict.findings):
        return False  # a quiet host gives a narrower interval
    timeable = timed and language is not None and language.is_timed(verdict.device)
    return not (verdict.correct and timeable and not verdict.timed)


class CachedEvaluator(KeptVerdicts):
    """Caches another evaluator's verdicts on disk.

    Several threads may use one object, and any number of processes one folder.

    Args:
        evaluator: Judges kernels without a cached verdict.
        folder: Folder for verdicts; by default ``verdicts`` in the judge's cache folder.
        limit_bytes: Total size above which the least recently used verdicts are removed.
        owns: Whether closing this object closes `evaluator`, too.

    Raises:
        UsageError: If the limit is not a positive number, or if the folder cannot be created.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        folder: str | Path | None = None,
        *,
        limit_bytes: int = _LIMIT_BYTES,
        owns: bool = False,
    ) -> None:
        if limit_bytes < 1:
            raise UsageError(f"limit_bytes must be at least 1, got {limit_bytes}")
        super().__init__(evaluator, owns=owns)
        where = cache_folder() / "verdicts" if folder is None else Path(folder).absolute()
        try:
            self._store = VerdictStore(where, limit_bytes)
        except OSError as error:
            raise UsageError(f"verdicts cannot be kept in {str(where)!r}: {error}") from None

    def key(self, job: Job) -> str:
        """Return the key of a job's verdict: 64 hexadecimal digits."""
        can, kernel = self.capabilities, job.kernel
        rules = json.dumps(dataclasses.asdict(can.ruleset), sort_keys=True)
        parts = (_FORMAT, job.problem.source, kernel.language, kernel.source, rules)
        # JSON, so that no two different lists of parts give the same text.
        text = json.dumps([*parts, can.timed, can.isolation, can.provenance])
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def find(self, key: str) -> Verdict | None:
        """Return the verdict that is stored under a key, or None."""
        return self._store.find(key)

    def keep(self, key: str, job: Job, verdict: Verdict) -> None:
        """Store a verdict, if judging again should give the same."""
        if is_kept(verdict, job.kernel, self.capabilities.timed):
            # If the disk is full, the verdict is not cached and the kernel is judged again later.
            with contextlib.suppress(OSError):
                self._store.file(key, verdict)

    def given(self, verdict: Verdict, started: float) -> Verdict:
        """Return a cached or shared verdict with the device and wall time of this call."""
        device = self.capabilities.device if verdict.device else ""
        return dataclasses.replace(verdict, device=device, wall_s=time.monotonic() - started)
