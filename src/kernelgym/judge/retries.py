"""The one table of retries: for which reason a kernel is judged again, and what is different then.

The worker carries out retries within its own process, the pool those that need another worker. No
other code tries a kernel again. Each retry happens at most once per kernel and worker; a second
process that confirms a time (`kernelgym.judge.timing.timer`) measures, and retries nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernelgym.judge.out_of_memory import is_out_of_memory
from kernelgym.types import Severity, Status, Verdict

__all__ = ["RETRIES", "Carrier", "Reason", "Retry", "retry_for"]


class Carrier(StrEnum):
    """Which part of the judge carries a retry out."""

    WORKER = "worker"
    POOL = "pool"


class Reason(StrEnum):
    """Why a kernel is judged again."""

    FAILED_WHILE_WATCHED = "failed while watched"
    LACKED_SHARED_MEMORY = "lacked memory that others may have held"
    HELD_UP = "ran out of time while the device was busy with others' work"
    EVIDENCE_RUN_FAILED = "failed in the run that gathers evidence"
    JUDGE_FAILED = "the judge failed"


@dataclass(frozen=True, slots=True)
class Retry:
    """One row of the table."""

    reason: Reason
    changes: str
    """What is different the next time."""
    carrier: Carrier
    attempts: int = 2
    """Attempts altogether, the first included."""


RETRIES: dict[Reason, Retry] = {
    retry.reason: retry
    for retry in (
        Retry(
            Reason.FAILED_WHILE_WATCHED,
            "no call is watched: the kernel may not bear that its launches are taken out",
            Carrier.WORKER,
        ),
        Retry(
            Reason.HELD_UP,
            "no other retry runs, and the device is idle or `patience_s` is over",
            Carrier.WORKER,
        ),
        Retry(
            Reason.LACKED_SHARED_MEMORY,
            "the kernel has the device's memory alone, unwatched",
            Carrier.WORKER,
        ),
        Retry(
            Reason.EVIDENCE_RUN_FAILED,
            "a fresh process: a kernel that passed all judged calls fails by chance at most once",
            Carrier.WORKER,
        ),
        Retry(
            Reason.JUDGE_FAILED,
            "a new worker process, and a new device context with it",
            Carrier.POOL,
        ),
    )
}
"""By reason."""

_LACKED = (Status.RUNTIME_ERROR, Status.COMPILE_ERROR, Status.REJECTED)
_FAILED = (Status.WRONG, Status.RUNTIME_ERROR, Status.TIMEOUT)


def retry_for(verdict: Verdict, was_watched: bool, shares_device: bool) -> Retry | None:
    """Return the retry that a verdict calls for at once; None if it stands.

    Whether a timeout was `Reason.HELD_UP` depends on the device and on other workers, so the
    worker looks that up itself.

    Args:
        verdict: Of the attempt.
        was_watched: Whether a judged call was watched.
        shares_device: Whether other workers use the device's memory.
    """
    if shares_device and _lacked_memory(verdict):
        return RETRIES[Reason.LACKED_SHARED_MEMORY]
    if was_watched and (verdict.status in _FAILED or _launched_nothing(verdict)):
        return RETRIES[Reason.FAILED_WHILE_WATCHED]
    return None


def _lacked_memory(verdict: Verdict) -> bool:
    said = (verdict.message, *(finding.message for finding in verdict.findings))
    return verdict.status in _LACKED and any(map(is_out_of_memory, said))


def _launched_nothing(verdict: Verdict) -> bool:
    return verdict.status is Status.REJECTED and any(
        finding.code == "no_kernel_launch" and finding.severity is Severity.HARD
        for finding in verdict.findings
    )
