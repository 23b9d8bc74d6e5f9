"""Limits of rates: no span of a minute holds more, and callers keep their order."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.rate_limit import RateLimit


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@given(
    amounts=st.lists(st.tuples(st.integers(1, 10), st.floats(0, 30)), min_size=1, max_size=30),
    most=st.integers(10, 25),
)
def test_no_minute_holds_more(amounts: list[tuple[int, float]], most: int) -> None:
    clock = Clock()
    limit = RateLimit(most, clock=clock, sleep=clock.sleep)
    passed: list[tuple[float, int]] = []

    async def take() -> None:
        for amount, pause in amounts:
            await limit.take(amount)
            passed.append((clock.now, amount))
            clock.now += pause

    asyncio.run(take())
    assert [amount for _, amount in passed] == [amount for amount, _ in amounts]
    for start, _ in passed:
        inside = sum(amount for at, amount in passed if start <= at < start + 59.999)
        assert inside <= most


def test_callers_pass_in_their_order() -> None:
    clock = Clock()
    limit = RateLimit(2, clock=clock, sleep=clock.sleep)
    order: list[int] = []

    async def take(number: int) -> None:
        await limit.take()
        order.append(number)

    async def all_of_them() -> None:
        await asyncio.gather(*(take(number) for number in range(7)))

    asyncio.run(all_of_them())
    assert order == list(range(7)) and clock.now == pytest.approx(180.0)


def test_no_limit_and_bad_limits() -> None:
    asyncio.run(RateLimit(None).take(1e9))
    RateLimit(None).check(1e9)
    with pytest.raises(UsageError, match="a number above 0"):
        RateLimit(-1)
    with pytest.raises(UsageError, match="--tpm is 5"):
        RateLimit(5).check(6)
