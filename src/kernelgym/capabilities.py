"""Abilities of an evaluator, and the counts that change while it runs.

`Capabilities` is a snapshot: an evaluator over a cluster returns another one when machines come or
go. Part of the nouns: standard library only.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from kernelgym.rulesets import Ruleset


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Abilities of an evaluator: its rules, its devices, and how it isolates and times kernels."""

    device: str
    """Device that kernels run on, such as ``cpu`` or ``cuda:0``; the first one if there are
    several."""
    ruleset: Ruleset
    """Rules that verdicts follow; `Verdict.ruleset` carries their label."""
    timed: bool = True
    """Whether correct kernels are timed, where their language can be timed on the device."""
    devices: tuple[str, ...] = ()
    """Names of all devices that share the work; `device` alone if empty."""
    device_kind: str = ""
    """Model of the devices, such as ``NVIDIA H100 80GB HBM3``; empty if unknown."""
    isolation: str = ""
    """Sandbox tier that was requested for kernels; empty if none of them is run."""
    workers: int = 1
    """Number of kernels that are judged at the same time, on all devices together."""
    memory_bytes: int | None = None
    """Memory budget: the most bytes that judging one kernel may take; None for no limit."""
    languages: tuple[str, ...] = ()
    """Names of the languages that kernels may be written in."""
    provenance: tuple[str, ...] = ()
    """Facts beside problem, kernel and ruleset that decide a verdict, one line each: the kind of
    device and the versions of the tools."""

    def __post_init__(self) -> None:
        if not self.devices:
            object.__setattr__(self, "devices", (self.device,))


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """Counts of one device since its evaluator was made."""

    device: str
    in_service: bool
    """Whether the device is given kernels."""
    lost: int = 0
    """Number of attempts at a verdict that failed on the device, for whatever reason."""
    moved: int = 0
    """Number of verdicts that another device gave after an attempt on this one had failed."""
    taken_out: int = 0
    """Number of times that the device was taken out of service."""
    reason: str = ""
    """Last failure of a device that is out of service; empty otherwise."""


@dataclass(frozen=True, slots=True)
class EvaluatorStatus:
    """Counts that an evaluator has kept since it was made."""

    health: tuple[DeviceHealth, ...] = ()
    """Health of each device; empty where the evaluator does not count failures by device."""
    hits: int = 0
    """Number of verdicts that were returned without judging the kernel again."""
    misses: int = 0
    """Number of verdicts that a caching evaluator had judged."""

    def plus(self, hits: int, misses: int) -> EvaluatorStatus:
        """Return this status with more hits and misses."""
        return dataclasses.replace(self, hits=self.hits + hits, misses=self.misses + misses)
