"""The table of retries, and which failure calls for which row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.retries import (
    RETRIES,
    Failure,
    Retry,
    RetryChange,
    RetryCondition,
    attempts_at,
    retry_for,
)
from kernelgym.types import Status

OF_THE_KERNEL = [Failure.WRONG, Failure.ERROR, Failure.IDLE, Failure.TIMEOUT]
CONDITIONS = st.sets(st.sampled_from(RetryCondition))


def changes(failure: Failure, *true: RetryCondition) -> list[RetryChange]:
    """Return the changes of all attempts that fail like that, under conditions that stay true."""
    done: list[Retry] = []
    while (row := retry_for(failure, lambda when: when in true, done)) is not None:
        done.append(row)
    return [row.change for row in done]


def test_table_every_change_stands_in_one_row() -> None:
    assert [row.change for row in RETRIES] == list(RetryChange)
    assert not any(Failure.NONE in row.failures for row in RETRIES)
    assert attempts_at(Failure.JUDGE) == attempts_at(Failure.EVIDENCE_RUN) == 2


@pytest.mark.parametrize("failure", OF_THE_KERNEL)
def test_failure_of_the_kernel_watched_is_repeated_unwatched(failure: Failure) -> None:
    assert changes(failure, RetryCondition.WATCHED) == [RetryChange.UNWATCHED]
    assert changes(failure) == changes(failure, RetryCondition.SHARED) == []


def test_timeout_held_up_waits_for_an_idle_device() -> None:
    assert changes(Failure.TIMEOUT, RetryCondition.HELD_UP) == [RetryChange.IDLE_DEVICE]
    watched = changes(Failure.TIMEOUT, RetryCondition.WATCHED, RetryCondition.HELD_UP)
    assert watched == [RetryChange.UNWATCHED, RetryChange.IDLE_DEVICE]
    assert changes(Failure.ERROR, RetryCondition.HELD_UP) == []


@pytest.mark.parametrize("failure", [Failure.MEMORY, Failure.JUDGE_MEMORY])
def test_lack_of_memory_shared_is_repeated_alone(failure: Failure) -> None:
    assert changes(failure, RetryCondition.SHARED, RetryCondition.WATCHED) == [RetryChange.ALONE]
    assert changes(failure, RetryCondition.WATCHED) == []


@given(st.lists(st.tuples(st.sampled_from(Failure), CONDITIONS), min_size=len(RETRIES) + 1))
def test_retries_whatever_fails_come_to_an_end(
    tries: list[tuple[Failure, set[RetryCondition]]],
) -> None:
    done: list[Retry] = []
    for failure, true in tries:
        row = retry_for(failure, true.__contains__, done)
        if row is None:
            return
        assert failure in row.failures and row.when in true
        assert not done or RETRIES.index(done[-1]) <= RETRIES.index(row)
        done.append(row)
    raise AssertionError(done)


@given(st.sampled_from(Failure))
def test_condition_of_no_row_is_not_asked(failure: Failure) -> None:
    asked: list[RetryCondition] = []
    retry_for(failure, lambda when: bool(asked.append(when)))
    assert set(asked) == {row.when for row in RETRIES if failure in row.failures}


@pytest.mark.parametrize("status", Status)
def test_status_without_retry_stands_for_no_failure(status: Status) -> None:
    failed = {Status.WRONG, Status.RUNTIME_ERROR, Status.TIMEOUT}
    assert (Failure.of(status) is not Failure.NONE) == (status in failed)
