"""The case to judge, a live process that runs its kernel, and the means to run it again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.session.session import CandidateSession
from kernelgym.rulesets import Ruleset
from kernelgym.types import Kernel, Problem


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """A kernel, its problem, and rules and seeds to judge it by."""

    problem: Problem
    kernel: Kernel
    ruleset: Ruleset
    seeds: Seeds


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A kernel's live process, and the reference to compare it with."""

    case: JudgedCase
    reference: Reference
    session: CandidateSession


@dataclass(frozen=True, slots=True)
class Rerun:
    """Means to run a kernel again, in a fresh process."""

    case: JudgedCase
    open: Callable[[], AbstractContextManager[CandidateSession]]
    """Function that opens a fresh process for the kernel."""
    reference: Callable[[], Reference]
    """Function that returns the reference, in the state in which it was constructed."""
    while_loading: Callable[[], object] = lambda: None
    """Function that is called while the process loads the kernel's module."""

    def start(self, session: CandidateSession) -> LiveRun:
        """Load and construct the kernel in a fresh process; return the live run.

        Raises:
            Rejected: If the kernel fails.
        """
        session.model.load(self.case.kernel.source, "ModelNew")
        self.while_loading()
        run = LiveRun(self.case, self.reference(), session)
        session.model.await_load()
        session.model.construct(run.reference)
        return run
