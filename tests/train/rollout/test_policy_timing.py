"""Policies whose time is measured: what counts as waiting for the model."""

from __future__ import annotations

import asyncio

import pytest

from kernelgym import Message, PolicyFailure
from kernelgym_train.rollout.policy_timing import TimedStream
from kernelgym_train.types import Completion, Key, SampleRequest


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def request(number):
    """Return a trajectory's first request."""
    return SampleRequest(Key(0, number), (Message("user", "say"),), number)


ANSWER = Completion("", (1,), (2,), (-0.5,), "stop", 0)


class Stream:
    """Answers once it is let."""

    def __init__(self):
        self.doors = {}
        self.closed = 0

    async def sample(self, requests):
        try:
            for index, each in enumerate(requests):
                door = self.doors.setdefault(each.key.problem, asyncio.Event())
                await door.wait()
                if each.seed < 0:
                    raise PolicyFailure("dropped")
                yield index, ANSWER
        finally:
            self.closed += 1


async def one(policy, asked):
    """Return the answer to one request."""
    found = policy.sample([asked])
    try:
        async for _, answer in found:
            return answer
    finally:
        await found.aclose()


def test_seconds_are_those_with_an_answer_missing():
    async def play():
        clock, stream = Clock(), Stream()
        timed = TimedStream(stream, clock)
        first = asyncio.ensure_future(one(timed, request(0)))
        await asyncio.sleep(0)
        clock.now = 2.0
        second = asyncio.ensure_future(one(timed, request(1)))
        await asyncio.sleep(0)
        clock.now = 5.0
        stream.doors[0].set()
        await first
        clock.now = 6.0
        stream.doors[1].set()
        await second
        clock.now = 10.0  # verdicts alone
        third = asyncio.ensure_future(one(timed, request(0)))
        await third
        return timed, stream

    timed, stream = asyncio.run(play())
    assert timed.seconds == 6.0
    assert timed.metrics() == {
        "policy/in_flight_max": 2.0,
        "policy/latency_mean_s": 3.0,
        "policy/latency_max_s": 5.0,
    }
    assert stream.closed == 3


@pytest.mark.parametrize("failing", [True, False])
def test_answer_that_never_came_is_no_longer_missing(failing):
    async def play():
        clock, stream = Clock(), Stream()
        timed = TimedStream(stream, clock)
        asked = SampleRequest(Key(0, 0), (Message("user", "say"),), -1)
        waiting = asyncio.ensure_future(one(timed, asked))
        await asyncio.sleep(0)
        clock.now = 4.0
        if failing:
            stream.doors[0].set()
        else:
            waiting.cancel()
        with pytest.raises(PolicyFailure if failing else asyncio.CancelledError):
            await waiting
        return timed, stream

    timed, stream = asyncio.run(play())
    assert timed.seconds == 4.0 and stream.closed == 1
    assert timed.metrics() == {"policy/in_flight_max": 1.0}
