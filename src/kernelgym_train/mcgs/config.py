"""`SearchConfig`: the options of a search, handed down unchanged.

The settings of `kernelgym-train --backend mcgs` and the arguments of
`kernelgym_train.mcgs.optimize` both become one `SearchConfig`, which is handed down unchanged.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kernelgym import UnknownName, UsageError, duel
from kernelgym.evaluators.duel import Duel
from kernelgym_train.mcgs.algorithms import ALGORITHMS, NEEDS_OPTUNA
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.proposing import Proposer
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.writing.writer import KernelWriter


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """Options of a search, all of them with defaults.

    Raises:
        UnknownName: If there is no such algorithm.
        UsageError: If `root_noise` is not a share, or the algorithm needs a package that is not
            installed.
    """

    budget: Budget = field(default_factory=Budget)
    """Limits of the search."""
    algo: str = "tpe"
    """Name of the algorithm, one of `kernelgym_train.mcgs.algorithms.ALGORITHMS`."""
    approximate: bool = False
    """Whether moves that make results less accurate are allowed. A kernel spec can allow them,
    too."""
    seed: int = 0
    """Seed of the search's random number generators. The judge draws its inputs in secret."""
    workers: int = 2
    """Number of kernels that are judged at the same time."""
    deterministic: bool = True
    """Whether results are recorded in the order in which kernels were sent to the judge, so that
    equal verdicts give equal searches. If False, each result is recorded when it arrives."""
    root_noise: float = 0.0
    """Share of random numbers in the start's priors, from 0 to 1, for ``mcgs``."""
    ncu_every: int = 0
    """Smallest number of evaluations between two profiles by hardware counters; 0 for no
    profiles."""
    require_quiet: bool = False
    """Whether to refuse a host on which two verdicts of the start differ by more than 10 %."""
    together: bool = True
    """Whether states that are likely to be judged are built together, where the evaluator can
    build without judging."""
    tactics: Path | None = None
    """Path of the file with the gains of moves, which several searches may share;
    ``global_tactic_graph.json`` in the folder of results if None."""
    proposer: Proposer | None = None
    """Proposer of variants; the rules of `kernelgym_train.mcgs.moves` if None."""
    writer: KernelWriter | None = None
    """Writer of kernels, such as a model, that is asked beside the proposer; None for rules alone.
    The search does not close it."""
    moves: tuple[str, ...] = ()
    """Ids of the moves that rules may make and the writer may be asked for; all if empty."""
    compare: Callable[..., Duel] = duel
    """Function that compares two kernels."""
    command: str = ""
    """Command that repeats the search, for ``pull_request.md``; empty if there is none."""
    say: Callable[[str], None] = lambda line: None
    """Function that is called with each line for the terminal."""
    watch: Callable[[SearchState], None] = lambda state: None
    """Function that is called with the search's state after each event, and after a resumption."""
    clock: Callable[[], float] = time.monotonic
    """Function that returns the time in seconds."""

    def __post_init__(self) -> None:
        if self.algo not in ALGORITHMS:
            raise UnknownName("algorithm", self.algo, ALGORITHMS)
        if self.algo in NEEDS_OPTUNA and importlib.util.find_spec("optuna") is None:
            raise UsageError(f"algo={self.algo} needs optuna; run: pip install 'kernelgym[search]'")
        if self.ncu_every < 0:
            raise UsageError(f"ncu_every={self.ncu_every}: give a number of evaluations, or 0")
        if not 0.0 <= self.root_noise <= 1.0:
            raise UsageError(f"root_noise={self.root_noise:g} is not a share; give 0 to 1")
