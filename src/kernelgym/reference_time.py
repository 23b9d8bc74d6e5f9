"""`ReferenceTime`: measured time of a reference, eager or compiled.

These are the columns that speedups of finished runs are compared with. They are measured ahead, in
processes of their own; a verdict's speedup comes from the reference timed beside the kernel
(`kernelgym.types.Timing`), never from here.

Does not cover measuring (`kernelgym.judge.measuring`) and files (`kernelgym.benchmark.times_file`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgym.errors import UsageError

MODES = (
    "eager",
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
    "cudagraphs",
)
"""Modes in which a reference is timed: `eager`; the modes of `torch.compile` with Inductor; and its
backend `cudagraphs`."""
_ON_GPUS = frozenset({"reduce-overhead", "cudagraphs"})
_PRECISIONS = ("own", "fp32", "fp16", "bf16")
_TF32 = ("off", "on", "torch")


@dataclass(frozen=True, slots=True)
class TimeSetting:
    """Setting in which a reference is timed."""

    mode: str = "eager"
    """Mode of the reference, one of `MODES`."""
    precision: str = "own"
    """Floating-point type of weights and inputs: own (as the problem has them), fp32, fp16 or
    bf16."""
    tf32: str = "off"
    """Whether fp32 work on a GPU may use TF32: off, on (products and convolutions), or torch (its
    defaults: convolutions only), as in a `kernelgym.rulesets.Ruleset`."""

    def __post_init__(self) -> None:
        """Raise `UsageError` if a word is unknown."""
        for what, given, known in (
            ("mode", self.mode, MODES),
            ("precision", self.precision, _PRECISIONS),
            ("tf32", self.tf32, _TF32),
        ):
            if given not in known:
                raise UsageError(f"{what} {given!r} is none of {', '.join(known)}")

    def __str__(self) -> str:
        return f"{self.mode}, {self.precision}, TF32 {self.tf32}"


@dataclass(frozen=True, slots=True)
class ReferenceTime:
    """Times of one reference in one setting, in ms per call."""

    problem_id: str
    digest: str
    """Digest of the problem's source."""
    setting: TimeSetting
    device: str
    """Name of the device, as the caller gives it."""
    mean: float = 0.0
    """Mean milliseconds of a call; like all times, 0.0 if the reference was not measured."""
    std: float = 0.0
    """Standard deviation over trials, with one degree of freedom less."""
    min: float = 0.0
    max: float = 0.0
    median: float = 0.0
    trials: int = 0
    compile_s: float = 0.0
    """Seconds of compiling and of the first two calls."""
    operations: float = 0.0
    """Floating-point operations of one call: those of matrix products, convolutions and attention.
    0.0 if they were not counted."""
    message: str = ""
    """Reason why the reference was not measured."""

    @property
    def measured(self) -> bool:
        """Whether the reference was measured."""
        return self.trials > 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ReferenceTime:
        """Return the time that `to_dict` wrote as data."""
        return cls(**{**data, "setting": TimeSetting(**data["setting"])})


def time_settings(
    modes: Sequence[str], precisions: Sequence[str], tf32: Sequence[str], device: str
) -> tuple[TimeSetting, ...]:
    """Return every setting that is possible on a device, from lists of modes, precisions and TF32.

    Raises:
        UsageError: If a word is unknown or missing, or needs a GPU and the device is none.
    """
    for what, words in (("modes", modes), ("precisions", precisions), ("tf32", tf32)):
        if not words:
            raise UsageError(f"{what} names nothing; give at least one word")
    if device.partition(":")[0] == "cpu":
        if needing := sorted(_ON_GPUS & set(modes)):
            raise UsageError(
                f"mode {needing[0]!r} needs a GPU, since it captures CUDA graphs; on the CPU there "
                f"are {', '.join(mode for mode in MODES if mode not in _ON_GPUS)}"
            )
        if "on" in tf32:
            raise UsageError("tf32 'on' needs a GPU; on the CPU there is no TF32")
    return tuple(
        dict.fromkeys(
            TimeSetting(mode, precision, allowed)
            for precision in precisions
            for allowed in tf32
            for mode in modes
        )
    )
