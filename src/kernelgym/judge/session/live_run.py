"""The case to judge, and one live process that runs its kernel."""

from __future__ import annotations

from dataclasses import dataclass

from kernelgym.judge.reference.reference import Reference, Seeds
from kernelgym.judge.session.session import CandidateSession
from kernelgym.rulesets import Ruleset
from kernelgym.types import Kernel, Problem

__all__ = ["JudgedCase", "LiveRun"]


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
