"""The case to judge, and one live process that runs its kernel."""

from __future__ import annotations

from dataclasses import dataclass

from kernelgym.judge.reference.reference import Reference, Seeds
from kernelgym.judge.session.session import Session
from kernelgym.rulesets import Ruleset
from kernelgym.types import Kernel, Problem

__all__ = ["Case", "LiveRun"]


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel and its problem, with the rules and the seeds that it is judged by."""

    problem: Problem
    kernel: Kernel
    ruleset: Ruleset
    seeds: Seeds


@dataclass(frozen=True, slots=True)
class LiveRun:
    """One live process of a kernel, and the reference that it is compared with."""

    case: Case
    reference: Reference
    session: Session
