"""Failures of a Tinker service that a run recovers from.

A client that trains is given up after its first failure: whether that request was carried out, or
will be, is not known, and the SDK lets later ones fail as well. The run goes on from its last
checkpoint with another client (`kernelgym_train.run.training.run_stretches`). A failure that every
further client would meet is not recovered from: a key that is refused, a bill, a request that
the service cannot take (HTTP 401, 402, 403, 422).

A request that changes nothing on the service, such as for an answer, is made again (`asked_again`)
before its failure counts.

It does not cover 400, which a server may also answer that has lost the model: the run tries again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from kernelgym import UsageError
from kernelgym_train.run.training import LearnerLost

_T = TypeVar("_T")

ATTEMPTS = 3
"""Most attempts at a request that changes nothing before its failure counts."""
_FINAL = (401, 402, 403, 422)
"""HTTP statuses of refusals that another client would get as well."""
_OURS = (UsageError, TypeError, AttributeError, LookupError, AssertionError)


def is_final(error: BaseException) -> bool:
    """Return True if another client would fail in the same way.

    Args:
        error: Exception from the SDK. The exceptions that caused it count, too: after a first
            failure, a client raises that failure again as a cause.
    """
    if isinstance(error, _OURS):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if getattr(cause, "status_code", None) in _FINAL:
            return True
        cause = cause.__cause__
    return False


async def or_lost(asked: Awaitable[_T]) -> _T:
    """Return the result of a training request to Tinker, or raise that its client is lost.

    Raises:
        LearnerLost: If the request fails, so that its client can no longer be relied on.
        Exception: The request's own failure, if another client would fail in the same way.
    """
    try:
        return await asked
    except Exception as error:
        if is_final(error):
            raise
        raise LearnerLost(f"{type(error).__name__}: {error}") from error


async def asked_again(ask: Callable[[], Awaitable[_T]]) -> _T:
    """Return the result of a request, which is made up to three times.

    Args:
        ask: Function that makes the request; the request must change nothing on the service.

    Raises:
        UsageError: At the first attempt that raises one, such as for weights that are not there.
        Exception: Failure of the last attempt.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await ask()
        except UsageError:
            raise
        except Exception:
            continue
    return await ask()
