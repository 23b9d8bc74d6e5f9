"""The one table of retries: for which reasons a kernel is judged again, and what changes then.

Contract:

- the worker carries out the retries within its own process, the pool those that need another
  worker; no other code judges a kernel again;
- each retry happens at most once per kernel and worker.

Does not cover the second process that confirms a time (`kernelgym.judge.timing.timer`): it
measures, and retries nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernelgym.judge.out_of_memory import is_out_of_memory
from kernelgym.types import Severity, Status, Verdict
from kernelgym.verdict import FRONT_END

__all__ = ["RETRIES", "Carrier", "Reason", "Retry", "retry_for"]


class Carrier(StrEnum):
    """The part of the judge that carries a retry out."""

    WORKER = "worker"
    POOL = "pool"


class Reason(StrEnum):
    """The reason why a kernel is judged again."""

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
    """What is different in the retry."""
    carrier: Carrier
    attempts: int = 2
    """Attempts altogether, the first included."""


RETRIES: dict[Reason, Retry] = {
    retry.reason: retry
    for retry in (
        Retry(
            Reason.FAILED_WHILE_WATCHED,
            "no call is watched: watching leaves launches out, which can make a kernel fail",
            Carrier.WORKER,
        ),
        Retry(
            Reason.HELD_UP,
            "no other retry runs, and the device is idle or `patience_s` is over",
            Carrier.WORKER,
        ),
        Retry(
            Reason.LACKED_SHARED_MEMORY,
            "the kernel has all of the device's memory, and is not watched",
            Carrier.WORKER,
        ),
        Retry(
            Reason.EVIDENCE_RUN_FAILED,
            "a fresh process: a kernel that passed all judged calls fails by chance at most once",
            Carrier.WORKER,
        ),
        Retry(
            Reason.JUDGE_FAILED,
            "a new worker process and device context, on another device if one is in service",
            Carrier.POOL,
        ),
    )
}
"""By reason."""

_LACKED = (Status.RUNTIME_ERROR, Status.COMPILE_ERROR, Status.REJECTED)
_FAILED = (Status.WRONG, Status.RUNTIME_ERROR, Status.TIMEOUT)


def retry_for(verdict: Verdict, was_watched: bool, shares_device: bool) -> Retry | None:
    """Return the retry that a verdict calls for; None without one.

    Never returns that of `Reason.HELD_UP`: it depends on the device and on other workers, so the
    worker decides on it.

    Args:
        verdict: The verdict of the attempt.
        was_watched: Whether a judged call was watched.
        shares_device: Whether other workers use the device's memory.
    """
    if shares_device and _lacked_memory(verdict):
        return RETRIES[Reason.LACKED_SHARED_MEMORY]
    if any(finding.code == FRONT_END for finding in verdict.findings):
        return None  # no run of the kernel decides on it
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
