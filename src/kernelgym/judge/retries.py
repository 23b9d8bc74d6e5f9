"""The one table of retries: failures that are judged again, and the changes of the next attempt.

Contract:

- the code in which an attempt fails names the failure as a `Failure`; nothing here or later reads
  it from a message;
- the worker chooses the next attempt at a kernel by `retry_for`; the run that gathers evidence and
  the pool of workers take their number of attempts from `attempts_at`. No other code judges a
  kernel again.

Does not cover the second process that confirms a time (`kernelgym.judge.timing.timer`): it
measures, and retries nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernelgym.types import Status


class Failure(StrEnum):
    """Kind of failure of an attempt at judging a kernel."""

    NONE = "nothing failed, or nothing that another attempt could change"
    WRONG = "an output differed from the reference's"
    ERROR = "the kernel raised an error or its process ended"
    IDLE = "the kernel launched nothing of its own"
    TIMEOUT = "the kernel exceeded its time limit"
    MEMORY = "the kernel ran out of the device's memory"
    JUDGE_MEMORY = "the judge ran out of the device's memory"
    EVIDENCE_RUN = "the kernel failed in the run that gathers evidence"
    JUDGE = "the judge raised an error or its worker was lost"

    @classmethod
    def of(cls, status: Status) -> Failure:
        """Return the failure that a verdict's status stands for, where the origin names none."""
        return _BY_STATUS.get(status, cls.NONE)


_BY_STATUS = {
    Status.WRONG: Failure.WRONG,
    Status.RUNTIME_ERROR: Failure.ERROR,
    Status.TIMEOUT: Failure.TIMEOUT,
}


class RetryCondition(StrEnum):
    """Condition under which a failure is worth another attempt."""

    ALWAYS = "always"
    WATCHED = "one of the attempt's calls was watched"
    HELD_UP = "another kernel kept the device busy meanwhile"
    SHARED = "other workers may have held the device's memory"


class RetryChange(StrEnum):
    """Change that the next attempt makes."""

    UNWATCHED = "no call is watched: watching leaves launches out, which can make a kernel fail"
    IDLE_DEVICE = "no other retry runs, and the device is idle or the wait for that was too long"
    ALONE = "the kernel has all of the device's memory"
    ANOTHER_PROCESS = "a fresh process: a kernel that passed fails by chance at most once"
    ANOTHER_WORKER = "a new worker process, on another device if one is in service"


@dataclass(frozen=True, slots=True)
class Retry:
    """One row of the table of retries."""

    failures: frozenset[Failure]
    """Failures of the last attempt to which the row applies."""
    when: RetryCondition
    change: RetryChange
    attempts: int = 2
    """Largest number of attempts altogether, the failed one included."""


RETRIES = (
    Retry(
        frozenset({Failure.WRONG, Failure.ERROR, Failure.IDLE, Failure.TIMEOUT}),
        RetryCondition.WATCHED,
        RetryChange.UNWATCHED,
    ),
    Retry(frozenset({Failure.TIMEOUT}), RetryCondition.HELD_UP, RetryChange.IDLE_DEVICE),
    Retry(
        frozenset({Failure.MEMORY, Failure.JUDGE_MEMORY}), RetryCondition.SHARED, RetryChange.ALONE
    ),
    Retry(frozenset({Failure.EVIDENCE_RUN}), RetryCondition.ALWAYS, RetryChange.ANOTHER_PROCESS),
    Retry(frozenset({Failure.JUDGE}), RetryCondition.ALWAYS, RetryChange.ANOTHER_WORKER),
)
"""The rows in the order in which they apply: no row follows one that stands below it."""


def retry_for(
    failure: Failure, holds: Callable[[RetryCondition], bool], done: Sequence[Retry] = ()
) -> Retry | None:
    """Return the row for the next attempt; None if the last attempt counts.

    Args:
        failure: The last attempt's failure.
        holds: Function that returns True if a condition holds; asked only where the failure has a
            row.
        done: Rows of the retries made so far, in order.
    """
    for row in RETRIES[RETRIES.index(done[-1]) if done else 0 :]:
        if failure in row.failures and done.count(row) < row.attempts - 1 and holds(row.when):
            return row
    return None


def attempts_at(failure: Failure) -> int:
    """Return the largest number of attempts after a failure, by the first row that names it."""
    return next(row.attempts for row in RETRIES if failure in row.failures)
