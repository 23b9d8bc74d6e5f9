"""The table of retries, and which verdict calls for which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.retries import RETRIES, Carrier, Reason, retry_for
from kernelgym.types import Finding, Severity, Status, Verdict

FULL = "CUDA error: out of memory"
IDLE = Finding("no_kernel_launch", "nothing was launched", Severity.HARD)


def reason(verdict: Verdict, watched: bool, shares: bool) -> Reason | None:
    found = retry_for(verdict, watched, shares)
    return None if found is None else found.reason


def test_every_reason_has_one_row() -> None:
    assert set(RETRIES) == set(Reason)
    assert [r.reason for r in RETRIES.values() if r.carrier is Carrier.POOL] == [
        Reason.JUDGE_FAILED
    ]
    assert all(retry.attempts == 2 and retry.changes for retry in RETRIES.values())


@pytest.mark.parametrize("status", [Status.WRONG, Status.RUNTIME_ERROR, Status.TIMEOUT])
def test_failure_is_retried_only_if_it_was_watched(status: Status) -> None:
    assert reason(Verdict(status), True, True) is Reason.FAILED_WHILE_WATCHED
    assert reason(Verdict(status), False, True) is None


def test_idle_rejection_is_retried_unwatched() -> None:
    idle = Verdict(Status.REJECTED, findings=(IDLE,))
    assert reason(idle, True, False) is Reason.FAILED_WHILE_WATCHED
    assert reason(Verdict(Status.REJECTED), True, False) is None


@pytest.mark.parametrize("watched", [True, False])
def test_lack_of_shared_memory_comes_first(watched: bool) -> None:
    verdict = Verdict(Status.RUNTIME_ERROR, message=FULL)
    assert reason(verdict, watched, True) is Reason.LACKED_SHARED_MEMORY
    alone = Reason.FAILED_WHILE_WATCHED if watched else None
    assert reason(verdict, watched, False) is alone


@given(st.booleans(), st.booleans(), st.sampled_from(["", FULL]))
def test_correct_or_unavailable_verdict_stands(watched: bool, shares: bool, said: str) -> None:
    correct = Verdict(Status.CORRECT, compiled=True, trials_passed=1, trials=1, message=said)
    for verdict in (correct, Verdict(Status.UNAVAILABLE, message=said)):
        assert reason(verdict, watched, shares) is None
