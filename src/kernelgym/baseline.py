"""`Baseline`: result of preparing a problem's compiled baseline.

A compiled baseline is the problem's own model under `torch.compile`. It is prepared once, by
``kernelgym baseline``, since compiling takes too long for a verdict. Nothing here compiles:
`kernelgym.judge.timing.baselines` does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelgym.rulesets import RULESETS, Ruleset


@dataclass(frozen=True, slots=True)
class Baseline:
    """A problem's compiled baseline on one device, and how fast it is."""

    problem_id: str
    device: str
    eager_ms: float = 0.0
    """Milliseconds of one call of the reference in eager PyTorch; 0.0 if it was not measured."""
    compile_ms: float = 0.0
    """Milliseconds of one call of the compiled reference; 0.0 if it was not measured."""
    prepared: bool = False
    """Whether verdicts can be timed against it."""
    message: str = ""
    """Reason why the baseline is not prepared, or the place that it was found in."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Baseline:
        """Return the baseline whose data `to_dict` returned."""
        return cls(**data)


def command_for(problem_id: str, ruleset: Ruleset, device: str) -> str:
    """Return the command that prepares a problem's compiled baseline for a ruleset and a device."""
    # Of a ruleset, precision and TF32 alone decide what is compiled.
    shipped = next(each for each in RULESETS.values() if each.tf32 == ruleset.tf32)
    words = ["kernelgym", "baseline", problem_id, "--device", device, "--ruleset", shipped.name]
    if ruleset.precision != shipped.precision:
        words += ["--precision", ruleset.precision]
    return " ".join(words)
