"""Requests to the verdict service, as its client writes them and its server reads them.

A request to judge is a `JobsRequest` in JSON; `kernelgym.reading.read` checks it. Verdicts cross as
`Verdict.to_dict`, capabilities as `capabilities_data`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelgym.capabilities import Capabilities
from kernelgym.rulesets import Ruleset

MOST_BODY_BYTES = 1 << 20
"""Largest body of a request that the service takes."""
MOST_JOBS = 1024
"""Largest number of jobs of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireProblem:
    """Problem of a job: one of the server's own by id and digest, or the client's by its source."""

    id: str
    """Id, such as ``KernelBench/L1/23``."""
    digest: str
    """`Problem.digest`; the server refuses a problem whose source has another one."""
    source: str | None = None
    """Source of a problem of the client's own, which the server's worker executes as trusted code;
    taken only from keys with the role ``problems``."""
    suite: str = ""
    """Suite of a problem with `source`."""
    level: int = 0
    """Level of a problem with `source`."""
    name: str = ""
    """Name of a problem with `source`."""
    family: str = ""
    """Operator family of a problem with `source`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireKernel:
    """Kernel of a job."""

    source: str
    """Source of the module that defines ``ModelNew``."""
    language: str
    """Name of a language, such as ``triton``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One kernel to be judged."""

    problem: WireProblem
    kernel: WireKernel
    ruleset: str = ""
    """Label of the rules, such as ``strict@1f0c2a77``; empty for the server's own."""
    device_kind: str = ""
    """Model of the device that has to judge; empty for any."""
    timing: bool | None = None
    """Whether correct kernels have to be timed; null for what the server does."""
    seed: str = ""
    """Seed of an earlier verdict, to repeat it; empty to draw one."""
    deadline_s: float | None = None
    """Seconds, from the request on, in which judging has to begin; null for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsRequest:
    """Kernels to be judged, as the body of ``POST /v1/jobs``."""

    jobs: tuple[JobRequest, ...]
    """Between 1 and 1,024 jobs."""


def capabilities_data(can: Capabilities) -> dict[str, Any]:
    """Return an evaluator's capabilities as plain JSON data."""
    return dataclasses.asdict(can)


def capabilities_from(data: Mapping[str, Any]) -> Capabilities:
    """Rebuild capabilities from `capabilities_data`, also after JSON, which has no tuples.

    Raises:
        TypeError: If a field is missing or unknown, as those of another version may be.
        KeyError: If the ruleset lacks a section.
    """
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
    }
    values["ruleset"] = Ruleset.from_dict(data["ruleset"])
    return Capabilities(**values)
