"""The SDK's requests, their limits and the end of a session: no server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kernelgym_train.backends.tinker.pauses import Pauses
from kernelgym_train.backends.tinker.service import Learner, Service, ServiceTimeout
from support import fake_clock

tinker = pytest.importorskip("tinker")

ADAM = {"learning_rate": 1e-2, "weight_decay": 0.0, "max_grad_norm": 0.0}


class Slow:
    """An SDK's training client: its first request takes 6 s, the next one so long after it."""

    def __init__(self, second_s):
        self._second_s, self._asked = second_s, 0

    def _request(self, found):
        self._asked += 1
        takes_s = 6.0 + (self._asked - 1) * self._second_s
        answer = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(takes_s, answer.set_result, found)
        return answer

    def forward_backward(self, data, loss, loss_config):
        return self._request(SimpleNamespace(loss_fn_outputs=[], metrics={"loss:sum": 1.0}))

    def optim_step(self, adam):
        return self._request(SimpleNamespace(metrics={"grad_norm": 2.0}))

    def save_state(self, name, *, ttl_seconds):
        return self._request(SimpleNamespace(path=f"tinker://run/weights/{name}"))

    def save_weights_for_sampler(self, name, *, ttl_seconds):
        return self._request(SimpleNamespace(path=f"tinker://run/sampler_weights/{name}"))


@pytest.fixture
def ask(monkeypatch):
    """Return what makes a learner's two requests, of which the second takes so long."""
    fake_clock.use(monkeypatch)

    def ask(kind, second_s):
        async def go():
            learner = Learner(Slow(second_s), 10.0, Pauses())
            if kind == "save":
                return await learner.save("one", keep_days=1)
            done = await learner.update([], loss="ppo", loss_config={}, **ADAM)
            return done.metrics

        return asyncio.run(go())

    return ask


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("update", {"loss:sum": 1.0, "grad_norm": 2.0}),
        ("save", ("tinker://run/weights/one", "tinker://run/sampler_weights/one")),
    ],
)
def test_two_requests_have_one_limit(kind, found, ask):
    assert ask(kind, 3.0) == found
    with pytest.raises(ServiceTimeout, match="within 10 s"):
        ask(kind, 6.0)


@pytest.mark.parametrize("failure", [None, TimeoutError("no answer"), RuntimeError("away")])
def test_end_of_a_session_is_waited_for_shortly(failure, monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-a-test")
    service, asked = Service("http://127.0.0.1:9", 60.0), []

    def result(timeout):
        asked.append(timeout)
        if failure:
            raise failure

    def close(status):
        asked.append(status)
        return SimpleNamespace(result=result)

    monkeypatch.setattr(service, "_client", SimpleNamespace(close=close))
    service.close()
    assert asked == ["success", 2.0]


def test_deletion_uses_the_connection_of_the_session(monkeypatch):
    """The SDK keeps the connection of a client by address and key open until the process ends."""
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-a-test")
    service, given, deleted = Service("http://127.0.0.1:9", 60.0), [], []

    async def delete(run, kept):
        deleted.append((run, kept))

    def made(*holder, **named):
        given.append((holder, named))
        return SimpleNamespace(delete_checkpoint=delete)

    monkeypatch.setattr(tinker, "RestClient", made)
    monkeypatch.setattr(service, "_client", SimpleNamespace(holder="of the session"))
    asyncio.run(service.delete("tinker://run/weights/one"))
    assert given == [(("of the session",), {})] and deleted == [("run", "weights/one")]
