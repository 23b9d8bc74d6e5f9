"""Settings of ``kernelgym-train --backend mcgs``: flat keys.

Contract: `read_search_settings` returns settings that fit together, or raises a `UsageError` that
names the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelgym import UnknownName, UsageError
from kernelgym_train.config.settings import read_settings
from kernelgym_train.mcgs.selection import ALGORITHMS

__all__ = ["Budget", "SearchSettings", "read_search_settings"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a search: the first that is met ends it."""

    builds: int = 60
    """Kernels that the search sends to the judge, failures included. The start, comparisons and
    the check of the best come on top."""
    seconds: float = 0.0
    """Wall time with all of that, in seconds; 0 for no limit."""

    def __post_init__(self) -> None:
        if self.builds < 1:
            raise UsageError(f"budget_builds={self.builds}: a search needs at least 1")
        if self.seconds < 0:
            raise UsageError(f"seconds={self.seconds:g}: give a time, or 0 for no limit")


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Every key of the command."""

    input: str = ""
    """A problem with its start kernel: example:matmul, example:softmax or example:layernorm."""
    problem: str = ""
    """Id of a problem, such as Synthetic/L1/2, or its file; needs kernel."""
    kernel: str = ""
    """File of the kernel to start from; needs problem."""
    language: str = "cpp"
    """Language of that kernel."""
    outdir: str = "out"
    """Folder of results; each kernel has its own in outdir/kernels."""
    budget_builds: int = 60
    """Kernels that the search sends to the judge; the comparisons that confirm the best come on
    top."""
    seconds: float = 0.0
    """Wall time that the whole search may take; 0 for no limit."""
    algo: str = "best_first"
    """How it is chosen what to try next: mcgs, best_first or random."""
    seed: int = 0
    """Of the search's own random numbers. The judge draws its inputs in secret."""
    workers: int = 2
    """Kernels that are judged at the same time. One is timed while others are built."""
    approximate: bool = False
    """Whether moves that make results less accurate are allowed, such as -ffast-math."""
    ruleset: str = "strict"
    """Rules of the judge."""
    resume: bool = False
    """Go on with the search in outdir."""

    @property
    def budget(self) -> Budget:
        """The limits."""
        return Budget(self.budget_builds, self.seconds)


def read_search_settings(given: Sequence[str]) -> SearchSettings:
    """Return settings from texts such as ``budget_builds=20``.

    Raises:
        UnknownName: If there is no such key or algorithm.
        UsageError: If a value does not fit.
    """
    settings = read_settings(SearchSettings, {}, given)
    if settings.algo not in ALGORITHMS:
        raise UnknownName("algorithm", settings.algo, ALGORITHMS)
    if settings.workers < 1:
        raise UsageError(f"workers={settings.workers}: at least 1 kernel is judged at a time")
    Budget(settings.budget_builds, settings.seconds)  # refuses limits that are none
    return settings
