"""Where the wall time of one verdict went."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Stages"]


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds of one verdict by stage; what is left of `Verdict.wall_s` is none of them.

    Stages do not overlap here: while one process waits for a build, that is what counts.
    """

    queue_s: float = 0.0
    """Waiting for the device or its memory, which other workers held."""
    build_s: float = 0.0
    """Compiling extensions, and assembling what Triton compiles on a GPU."""
    load_s: float = 0.0
    """Until the process stands, the kernel is imported, and the reference is ready."""
    check_s: float = 0.0
    """Judged calls: inputs drawn, both sides run, outputs compared."""
    evidence_s: float = 0.0
    """The calls, and where needed the second run, that look at what custom kernels do."""
    timing_s: float = 0.0
    """Timed windows, the baseline's process included."""

    @property
    def total_s(self) -> float:
        """All stages together."""
        return sum(float(getattr(self, each.name)) for each in fields(self))
