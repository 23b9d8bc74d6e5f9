"""Claims: results of kernels from another harness, in a run's ``claims.jsonl``.

Contract: a claim is only shown; no rate counts it. `compare` says how a claim and our verdict
differ. Times are in milliseconds; None where none was claimed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelgym.benchmark.kernelbench import as_kernelbench
from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import read_lines
from kernelgym.types import Verdict

CLAIMS_FILE = "claims.jsonl"


@dataclass(frozen=True, slots=True)
class Claim:
    """Result of one kernel from another harness."""

    problem: str
    """Id of the problem in kernelgym."""
    sample: int
    compiled: bool
    correct: bool
    runtime_ms: float | None = None
    """Mean time of a call of the kernel, in milliseconds."""
    reference_ms: float | None = None
    """Time of the reference or a baseline in milliseconds; None if none was claimed."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """Reasons why the claim may be misleading."""

    @property
    def speedup(self) -> float | None:
        """Claimed speedup; None if a time is missing."""
        if not self.correct or not self.runtime_ms or not self.reference_ms:
            return None
        return self.reference_ms / self.runtime_ms

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)} | {
            "metadata": dict(self.metadata),
            "warnings": list(self.warnings),
        }


def compare(claim: Claim, verdict: Verdict | None) -> str:
    """Return how claim and verdict differ; empty if they agree.

    Both are compared in KernelBench's terms; see `kernelgym.benchmark.kernelbench`.

    Args:
        claim: The claim.
        verdict: Verdict of kernelgym; None or `unavailable` if there is none.
    """
    if verdict is None or not verdict.valid:
        return "not judged here"
    ours = as_kernelbench(verdict)
    if claim.correct != ours.correctness:
        said = "correct" if claim.correct else "not correct"
        return f"claimed {said}, {verdict.status.value} here"
    if claim.compiled != ours.compiled:
        said = "compiled" if claim.compiled else "not compiled"
        return f"claimed {said}, {verdict.status.value} here"
    return ""


def read_claims(path: Path) -> dict[tuple[str, int], Claim]:
    """Return the claims of a run, by problem and sample.

    Raises:
        UsageError: If a line is not a claim.
    """
    found: dict[tuple[str, int], Claim] = {}
    names = {each.name for each in dataclasses.fields(Claim)}
    for number, row in read_lines(path, on_cut=lambda _: None):
        try:
            known = {name: value for name, value in row.items() if name in names}
            claim = Claim(**known | {"warnings": tuple(row.get("warnings", ()))})
            found[claim.problem, claim.sample] = claim
        except TypeError as error:
            raise UsageError(f"{path}, line {number}: not a claim ({error})") from None
    return found
