"""Pauses of a service are told once a minute."""

from __future__ import annotations

import asyncio
import logging
import threading
from types import SimpleNamespace

import pytest

from kernelgym_train.backends.tinker.pauses import Pauses
from kernelgym_train.backends.tinker.service import Learner, Sampler, Service
from kernelgym_train.run.interrupts import finish_within
from support import fake_clock


class Told:
    """Keeps what pauses tell."""

    def __init__(self):
        self.now, self.lines, self.events = 0.0, [], []
        self.pauses = Pauses(self.lines.append, lambda: self.now)
        self.pauses.event = lambda name, **facts: self.events.append((name, facts["what"]))


def test_pause_is_told_once_a_minute():
    told = Told()
    for now in (0.0, 0.1, 59.0, 60.0, 61.0):
        told.now = now
        told.pauses.told("sampling", "paused_capacity")
    told.pauses.told("training", "paused_rate_limit", "too many adapters")
    assert told.lines == [
        *["the Tinker service makes sampling wait: the service is short of capacity"] * 2,
        "the Tinker service makes training wait: too many adapters",
    ]
    assert told.events == [("paused", "sampling")] * 2 + [("paused", "training")]


def test_queues_of_the_sdk_are_told_at_once():
    pytest.importorskip("tinker")
    from tinker.lib.api_future_impl import QueueState
    from tinker.lib.public_interfaces.sampling_client import SamplingClient
    from tinker.lib.public_interfaces.training_client import TrainingClient

    told = Told()
    training = TrainingClient(SimpleNamespace(), 0, "model", info=None)
    assert hasattr(training, "_queue_state_logger"), "what its requests are observed by"
    sampling = SamplingClient.__new__(SamplingClient)
    assert hasattr(sampling, "on_queue_state_change")
    Learner(training, 1.0, told.pauses)
    Sampler(sampling, told.pauses)
    for state in (QueueState.ACTIVE, QueueState.UNKNOWN, QueueState.PAUSED_CAPACITY):
        training._queue_state_logger.on_queue_state_change(state, None)
        sampling.on_queue_state_change(state, "why")
    assert told.events == [("paused", "training"), ("paused", "sampling")]
    assert told.lines[1].endswith("why")


@pytest.fixture
def service(monkeypatch):
    """Return a service without a server, and what its pauses tell."""
    pytest.importorskip("tinker")
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-a-test")
    told, found = Told(), Service("http://127.0.0.1:9", 60.0)
    found.pauses = told.pauses
    found._billing._pauses = told.pauses
    yield found, told
    found.close()


def test_billing_pause_of_the_sdk_is_told(service):
    from tinker.lib.internal_client_holder import InternalClientHolder

    _, told = service
    holder = SimpleNamespace(
        _first_billing_exception_time=None,
        _last_logged_billing_exception_time=None,
        _client_config=SimpleNamespace(billing_exception_max_pause_duration_sec=3600),
    )
    assert InternalClientHolder._should_pause_on_billing(holder, 402, "no card")
    assert told.events == [("paused", "every request")] and "no card" in told.lines[0]
    record = logging.LogRecord("sdk", logging.WARNING, "", 1, "something else", (), None)
    assert service[0]._billing.filter(record), "other lines of the SDK's log stay"


def test_slow_adapter_is_told_within_thirty_seconds(service, monkeypatch):
    found, told = service
    fake_clock.use(monkeypatch)

    async def made():
        loop = asyncio.get_running_loop()
        client = SimpleNamespace()
        answer = loop.create_future()
        loop.call_later(24.0, lambda: told.events.append("waiting"))
        loop.call_later(31.0, answer.set_result, client)
        assert await found._made(lambda: answer, "a new adapter") is client

    asyncio.run(made())
    assert told.events == ["waiting", ("paused", "a new adapter")]


def test_session_that_blocks_is_given_up(service, monkeypatch):
    found, _ = service
    fake_clock.use(monkeypatch)
    free = threading.Event()

    async def made():
        try:
            await found._made(free.wait, "a new adapter")
        finally:
            free.set()

    with pytest.raises(TimeoutError, match="did not give a new adapter within 60 s"):
        asyncio.run(made())


def test_renewed_service_has_another_session(service):
    found, _ = service
    before = found._client
    found.renew()
    assert found._client is not before and before._closed


@pytest.mark.parametrize(("takes", "asked", "done"), [(9, 2, True), (20, 2, False), (99, 0, True)])
def test_work_has_so_long_after_an_interrupt(takes, asked, done, monkeypatch):
    fake_clock.use(monkeypatch)
    interrupted, ended = threading.Event(), []

    async def work():
        try:
            await asyncio.sleep(takes)
        finally:
            ended.append(asyncio.get_running_loop().time())

    async def go():
        if asked:
            asyncio.get_running_loop().call_later(asked, interrupted.set)
        return await finish_within(work(), interrupted, 10.0)

    assert asyncio.run(go()) is done
    assert ended == [pytest.approx(min(takes, asked + 10.0) if asked else takes, abs=0.6)]
