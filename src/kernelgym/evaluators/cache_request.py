"""One asker's way to one verdict: found, waited for, or for the asker to judge.

A request is settled when it holds a verdict or is the asker's to judge; then `answer` files what
the asker found and lets those who wait for it go on. What is worth keeping is decided here.
"""

from __future__ import annotations

import contextlib

from kernelgym.evaluators.cache_store import Claim, VerdictStore
from kernelgym.judge.compiling.compiler_process import FAILED, is_transient
from kernelgym.languages import LANGUAGES
from kernelgym.types import Kernel, Status, Verdict

__all__ = ["Request", "is_kept"]


def is_kept(verdict: Verdict, kernel: Kernel, times: bool) -> bool:
    """Say whether a verdict would be the same another time, as far as one can tell.

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


class Request:
    """A verdict wanted by one asker.

    Args:
        store: Where verdicts are kept.
        key: Of the verdict.
        queues: Whether to claim what is not there; otherwise the asker judges beside others.
    """

    def __init__(self, store: VerdictStore, key: str, queues: bool = True) -> None:
        self._store, self.key = store, key
        self._claim: Claim | None = None
        self._owns = False
        self._queues = queues
        self.verdict: Verdict | None = None
        """What was found, or left by the one that was waited for; None if it is to be judged."""

    def advance(self, wait: bool) -> bool:
        """Find the verdict or become the one to judge; false if somebody else still judges it.

        Args:
            wait: Whether to wait for that somebody.
        """
        while self._claim is not None or self._is_missing():
            if not self._queues:
                return True
            try:
                if self._claim is None:
                    self._claim = self._store.claim(self.key)
                claim = self._claim
                if not claim.take(wait):
                    return False
                if claim.look():
                    # It may have been filed since it was looked for.
                    self._owns = self._is_missing()
                    if not self._owns:
                        self._claim = None
                        claim.settle()
                    return True
            except OSError:  # no more files can be opened, or no locks are to be had there
                self.release()
                return True
            self._claim = None
            claim.leave()
            if claim.shared is not None or claim.alone:
                self.verdict, self._queues = claim.shared, False
                return True
        return True

    def answer(self, verdict: Verdict, kept: bool) -> None:
        """File what the asker found, if it is kept, and tell those who wait."""
        if kept:
            # A full disk costs the next asker time, and nothing else.
            with contextlib.suppress(OSError):
                self._store.file(self.key, verdict)
                self._settle()
                return
        self._settle(None if kept or not verdict.valid else verdict, alone=not verdict.valid)

    def release(self) -> None:
        """Give up; those who wait judge for themselves."""
        self._settle(alone=True)

    def _settle(self, shared: Verdict | None = None, alone: bool = False) -> None:
        claim, self._claim = self._claim, None
        if claim is None:
            return
        if self._owns:
            self._owns = False
            claim.settle(shared, alone)
        else:
            claim.leave()

    def _is_missing(self) -> bool:
        self.verdict = self._store.find(self.key)
        return self.verdict is None
