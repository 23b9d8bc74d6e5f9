"""`Budget`: limits at which a search ends."""

from __future__ import annotations

from dataclasses import dataclass

from kernelgym import UsageError


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a search: the first that is met ends it."""

    builds: int = 60
    """Number of kernels that the search sends to the judge, including those that fail. Verdicts on
    the start, comparisons and the check of the best are not counted."""
    seconds: float = 0.0
    """Wall time of the whole search in seconds; 0 for no limit."""
    min_pred_gain: float = 0.02
    """Smallest expected gain in speed, as a share, for which a proposal is judged, and smallest
    improvement of the best that counts as a gain. For the latter, three standard deviations of one
    verdict are used if they are larger."""
    patience: int = 0
    """Number of evaluations without a gain after which the search ends; 0 for no such limit."""
    floor_share: float = 0.95
    """Share of the device's bandwidth at which the search ends, if the judge measures it."""

    def __post_init__(self) -> None:
        if self.builds < 1:
            raise UsageError(f"budget_builds={self.builds}: a search needs at least 1")
        if not 0 <= self.seconds < float("inf"):
            raise UsageError(f"seconds={self.seconds:g}: give a time, or 0 for no limit")
        if not 0 <= self.min_pred_gain < float("inf"):
            raise UsageError(f"min_pred_gain={self.min_pred_gain:g}: give a share, such as 0.02")
        if self.patience < 0:
            raise UsageError(f"patience={self.patience}: give evaluations, or 0 for no such limit")
        if not 0 < self.floor_share < float("inf"):
            raise UsageError(f"floor_share={self.floor_share:g}: give a share, such as 0.95")
