"""`Baseline`: what preparing a problem's compiled baseline came to.

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
    """One call of the reference as PyTorch runs it; 0.0 if it was not measured."""
    compile_ms: float = 0.0
    """One call of the compiled reference; 0.0 if it was not measured."""
    prepared: bool = False
    """Whether verdicts can be timed against it."""
    message: str = ""
    """Why it is not prepared, or where it came from."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Baseline:
        """Rebuild one from `to_dict`'s data."""
        return cls(**data)


def command_for(problem_id: str, ruleset: Ruleset, device: str) -> str:
    """Return the command that prepares a problem's compiled baseline for such verdicts."""
    # Of a ruleset, precision and TF32 alone decide what is compiled.
    shipped = next(each for each in RULESETS.values() if each.tf32 == ruleset.tf32)
    words = ["kernelgym", "baseline", problem_id, "--device", device, "--ruleset", shipped.name]
    if ruleset.precision != shipped.precision:
        words += ["--precision", ruleset.precision]
    return " ".join(words)
