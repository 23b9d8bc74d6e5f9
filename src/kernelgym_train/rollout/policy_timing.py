"""Measures the time of a policy that streams answers; `SharingPolicy` does so for batches.

Contract: answers pass unchanged. `seconds` is the time in which at least one answer was asked for
and not given yet; what is left of a play's time was spent on verdicts alone. Time decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

from kernelgym_train.rollout.play import Policy
from kernelgym_train.types import Completion, SampleRequest


class TimedStream:
    """Policy that passes another one's answers through and measures the time of each.

    Args:
        policy: The policy.
        clock: Function that returns the time in seconds.
    """

    def __init__(self, policy: Policy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy, self._clock = policy, clock
        self._latencies: list[float] = []
        self._in_flight = self._most = 0
        self._since = 0.0
        self.seconds = 0.0

    async def sample(
        self, requests: Sequence[SampleRequest]
    ) -> AsyncIterator[tuple[int, Completion]]:
        """Yield (index of the request, its completion) as the policy does."""
        started = self._clock()
        left = len(requests)
        self._enter(left, started)
        found = self._policy.sample(requests)
        try:
            async for index, completion in found:
                now = self._clock()
                self._latencies.append(now - started)
                self._leave(1, now)
                left -= 1
                yield index, completion
        finally:
            self._leave(left, self._clock())
            if isinstance(found, AsyncGenerator):
                await found.aclose()

    def metrics(self) -> dict[str, float]:
        """Return metrics of the answers' latencies, and the largest number in flight."""
        found = {"policy/in_flight_max": float(self._most)}
        if self._latencies:
            found["policy/latency_mean_s"] = sum(self._latencies) / len(self._latencies)
            found["policy/latency_max_s"] = max(self._latencies)
        return found

    def _enter(self, count: int, now: float) -> None:
        if not self._in_flight:
            self._since = now
        self._in_flight += count
        self._most = max(self._most, self._in_flight)

    def _leave(self, count: int, now: float) -> None:
        if not count:
            return
        self._in_flight -= count
        if not self._in_flight:
            self.seconds += now - self._since
