"""Limits of requests and tokens a minute.

Contract: in every span of 60 seconds, at most the given amount passes; callers pass in the order in
which they came. The tokens of a request are estimated when it is made.
"""

from __future__ import annotations

import asyncio
import collections
import math
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
        self._turn = asyncio.Lock()

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
        if self._most is None:
            return
        async with self._turn:
            while True:
                now = self._clock()
                while self._let_through and self._let_through[0][0] <= now - _SPAN_S:
                    self._sum -= self._let_through.popleft()[1]
                if self._sum + amount <= self._most or not self._let_through:
                    break
                await self._sleep(max(0.001, self._let_through[0][0] + _SPAN_S - now))
            self._let_through.append((now, amount))
            self._sum += amount
