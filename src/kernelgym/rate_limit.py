"""Limits of requests and tokens a minute.

Contract: in every span of 60 seconds, at most the given amount passes. `RateLimit.take` waits, and
its callers pass in the order in which they came; `RateLimit.wait_s` says how long to wait, from any
thread. The tokens of a request to a model are estimated when it is made.
"""

from __future__ import annotations

import asyncio
import collections
import math
import threading
import time
from collections.abc import Awaitable, Callable

from kernelgym.errors import UsageError

_SPAN_S = 60.0


class RateLimit:
    """Limit of an amount a minute.

    Args:
        per_minute: Largest amount a minute; None for no limit.
        clock: Function that returns seconds.
        sleep: Function that waits for seconds.

    Raises:
        UsageError: If the limit is not above 0.
    """

    def __init__(
        self,
        per_minute: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if per_minute is not None and not 0.0 < per_minute < math.inf:
            raise UsageError(f"a limit per minute is a number above 0, got {per_minute}")
        self._most, self._clock, self._sleep = per_minute, clock, sleep
        self._let_through: collections.deque[tuple[float, float]] = collections.deque()
        self._sum = 0.0
        self._lock, self._turn = threading.Lock(), asyncio.Lock()

    def check(self, amount: float) -> None:
        """Refuse an amount that could never pass.

        Raises:
            UsageError: If it is above the limit.
        """
        if self._most is not None and amount > self._most:
            raise UsageError(
                f"one request counts for {amount:g} tokens, and --tpm is {self._most:g}; raise it, "
                "or lower --max-tokens"
            )

    async def take(self, amount: float = 1.0) -> None:
        """Wait until the limit allows an amount, such as the tokens of a request.

        An amount above the limit passes once nothing else has passed for a minute.
        """
        async with self._turn:
            while wait_s := self.wait_s(amount):
                await self._sleep(wait_s)

    def wait_s(self, amount: float = 1.0) -> float:
        """Let an amount pass and return 0.0, or return the seconds after which it may pass."""
        if self._most is None:
            return 0.0
        with self._lock:
            now, through = self._clock(), self._let_through
            while through and through[0][0] <= now - _SPAN_S:
                self._sum -= through.popleft()[1]
            if through and self._sum + amount > self._most:
                return max(0.001, through[0][0] + _SPAN_S - now)
            through.append((now, amount))
            self._sum += amount
            return 0.0
