"""The bridge, call by call: our service module, today's SDK and a third party's server."""

from __future__ import annotations

import asyncio
import signal

import pytest

from kernelgym import UsageError
from kernelgym_train.backends.tinker.datums import datum_row, logprob_gap
from kernelgym_train.backends.tinker.losses import loss_of
from kernelgym_train.backends.tinker.recovery import or_lost
from kernelgym_train.backends.tinker.server_probe import KeptWeights, find_weights
from kernelgym_train.backends.tinker.service import Service
from kernelgym_train.backends.tinker.settings import EVERYWHERE
from kernelgym_train.config.config import load_config
from kernelgym_train.credit.credit import token_weights
from kernelgym_train.run.training import LearnerLost
from kernelgym_train.types import Key, Sample

pytestmark = pytest.mark.tinker

PROMPT = (4, 5, 6, 7, 8)
LIMIT_S = 240.0
ADAM = {"learning_rate": 1e-2, "weight_decay": 0.0, "max_grad_norm": 0.0}


def serve(server, play):
    """Run `play(service)` with a connection of its own."""

    async def go():
        service = Service(server.url, LIMIT_S)
        try:
            return await play(service)
        finally:
            service.close()

    return asyncio.run(go())


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-a-test")


async def answers(sampler, count):
    """Return some answers of six tokens."""
    asked = (
        sampler.sample(
            PROMPT, max_tokens=6, temperature=1.0, top_p=1.0, stop=(), seed=n, limit_s=LIMIT_S
        )
        for n in range(count)
    )
    return await asyncio.gather(*asked)


def rows_for(found, advantages):
    """Return rows that give each answer an advantage."""
    return [
        datum_row(Sample(Key(0, n), PROMPT, one.ids, one.logprobs, advantage, 1.0))
        for n, (one, advantage) in enumerate(zip(found, advantages, strict=True))
    ]


async def updated(learner, rows, **more):
    """Take one optimiser step by importance sampling."""
    given = {"loss": "importance_sampling", "loss_config": {}, **ADAM, **more}
    return await learner.update(rows, **given)


def test_learner_and_sampler_agree_until_an_update(server):
    async def play(service):
        learner = await service.create(str(server.model), 8, seed=1)
        found = await answers(await learner.snapshot(), 4)
        rows = rows_for(found, (1.0, -1.0, 0.5, 0.0))
        first = await updated(learner, rows)
        second = await updated(learner, rows, learning_rate=0.0)
        return found, rows, first, second

    found, rows, first, second = serve(server, play)
    _, most = logprob_gap(rows, first.logprobs, [len(PROMPT)] * 4)
    assert most < 1e-4
    assert first.metrics["loss:sum"] == pytest.approx(
        -sum(a * len(one.ids) for a, one in zip((1.0, -1.0, 0.5, 0.0), found, strict=True)),
        abs=1e-3,
    )
    _, moved = logprob_gap(rows, second.logprobs, [len(PROMPT)] * 4)
    assert moved > 1e-3


def test_every_loss_of_the_backend_is_taken(server):
    """On policy, where no ratio is clipped, all of them have the same gradient."""

    async def play(service):
        learner = await service.create(str(server.model), 8, seed=1)
        rows = rows_for(await answers(await learner.snapshot(), 2), (1.0, -0.5))
        found = {}
        for name in EVERYWHERE:
            loss = loss_of(load_config(None, ("run.backend=tinker", f"optimiser.loss={name}")))
            more = {"loss": loss.name, "loss_config": loss.config, "learning_rate": 0.0}
            found[name] = (await updated(learner, rows, **more)).metrics["skyrl.ai/grad_norm"]
        return found

    found = serve(server, play)
    assert all(norm == pytest.approx(found["ppo"], rel=1e-3) for norm in found.values()), found


def test_loss_the_server_lacks_is_told(server):
    async def play(service):
        found = {}
        for name in ("ppo", "gspo", "dro"):
            learner = await service.create(str(server.model), 8, seed=1)
            found[name] = await learner.has_loss(name, {})
        return found

    assert serve(server, play) == {"ppo": True, "gspo": False, "dro": False}


def test_base_model_tells_log_probabilities(server):
    """Those of the learner, as long as its adapter is fresh; a server may leave out the first."""

    async def play(service):
        learner = await service.create(str(server.model), 8, seed=1)
        found = await answers(await learner.snapshot(), 2)
        base = await service.sampler(base_model=str(server.model))
        rows = rows_for(found, (1.0, -1.0))
        before = [await base.score(PROMPT, one.ids, limit_s=LIMIT_S) for one in found]
        await updated(learner, rows)
        after = [await base.score(PROMPT, one.ids, limit_s=LIMIT_S) for one in found]
        return found, before, after

    found, before, after = serve(server, play)
    for one, told in zip(found, before, strict=True):
        assert told == pytest.approx(one.logprobs, abs=1e-4)
    assert after == before, "the learner has moved away from it"


def test_losses_are_summed_over_rows_and_tokens(server):
    async def norm(learner, rows):
        done = await updated(learner, rows, learning_rate=0.0)
        return done.metrics["skyrl.ai/grad_norm"]

    async def play(service):
        learner = await service.create(str(server.model), 8, seed=1)
        found = await answers(await learner.snapshot(), 2)
        once, other = rows_for(found, (1.0, 0.0))
        return [await norm(learner, rows) for rows in ([once], [once, once], [once, other])]

    once, twice, beside_zero = serve(server, play)
    assert twice == pytest.approx(2 * once, rel=1e-3)
    assert beside_zero == pytest.approx(once, rel=1e-3)


def test_gradients_of_unlike_lengths_have_credits_ratio(server):
    """Both datums teach the same two tokens; what differs is their length, and so their weight."""

    async def play(service):
        learner = await service.create(str(server.model), 8, seed=1)
        (found,) = await answers(await learner.snapshot(), 1)
        lengths = [2, len(found.ids)]
        norms, weights = [], token_weights("sequence", lengths)
        for length, weight in zip(lengths, weights, strict=True):
            sample = Sample(
                *(Key(0, 0), PROMPT, found.ids[:length], found.logprobs[:length], 1.0, weight)
            )
            row = datum_row(sample, [0.0, 0.0, *[1.0] * (length - 2)])
            done = await updated(learner, [row], learning_rate=0.0)
            norms.append(done.metrics["skyrl.ai/grad_norm"])
        return norms, weights

    norms, weights = serve(server, play)
    assert weights[0] == 3 * weights[1]
    assert norms[0] / norms[1] == pytest.approx(3.0, rel=1e-3)


def test_update_survives_sampling_an_older_snapshot(server):
    async def play(service):
        learner = await service.create(str(server.model), 8, seed=1)
        old = await learner.snapshot()
        found = await answers(old, 2)
        rows = rows_for(found, (1.0, -1.0))
        await updated(learner, rows)
        before = await updated(learner, rows, learning_rate=0.0)
        again = await answers(old, 2)
        after = await updated(learner, rows, learning_rate=0.0)
        return found, before, again, after

    found, before, again, after = serve(server, play)
    assert again == found  # the snapshot is what it was
    assert before.logprobs == after.logprobs  # and so are the learner's weights


def test_weights_kept_for_sampling_stay_as_they_are(server):
    async def play(service):
        learner = await service.create(str(server.model), 8, seed=1)
        path = await learner.save_sampler("before", keep_days=0)
        kept = await service.sampler(path)
        found = await answers(kept, 2)
        await updated(learner, rows_for(found, (1.0, -1.0)), learning_rate=0.1)
        return found, await answers(await learner.snapshot(), 2), await answers(kept, 2)

    before, updates, after = serve(server, play)
    for one, other in zip(before, after, strict=True):
        assert one.ids == other.ids and one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert [one.logprobs for one in before] != [one.logprobs for one in updates]


def test_checkpoint_deleted_is_gone(server):
    async def play(service):
        learner = await service.create(str(server.model), 8, seed=1)
        state, sampler = await learner.save("gone", keep_days=0)
        for path in (state, sampler, state):
            await service.delete(path)
        with pytest.raises(UsageError, match="the Tinker server has no tinker://"):
            await service.restore(state)

    serve(server, play)


def test_weights_tell_their_model_and_rank(server):
    async def play(service):
        learner = await service.create(str(server.model), 8, seed=1)
        return await learner.save("kept", keep_days=0)

    path, _ = serve(server, play)
    assert find_weights(server.url, "", path) == KeptWeights(path, str(server.model), 8)
    with pytest.raises(UsageError, match="has no tinker://"):
        find_weights(server.url, "", path.replace("kept", "other"))


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_checkpoint_restores_weights(killed, server):
    """In another session, of the same server or of one that was started after a kill."""

    async def first(service):
        learner = await service.create(str(server.model), 8, seed=1)
        rows = rows_for(await answers(await learner.snapshot(), 2), (1.0, -1.0))
        await updated(learner, rows)
        kept, sampler = await learner.save("kept", keep_days=0)
        found = await answers(await service.sampler(sampler), 2)
        return rows, kept, await updated(learner, rows, learning_rate=0.0), sampler, found

    rows, kept, before, sampler, found = serve(server, first)
    if killed:
        engines = server.engines
        server.stop(signal.SIGKILL)
        server.start()
        assert not set(engines) & set(server.engines)

    async def then(service):
        alone = await answers(await service.sampler(sampler), 2)  # without the learner
        learner = await service.restore(kept)
        told = await updated(learner, rows, learning_rate=0.0)
        return alone, told, await answers(await learner.snapshot(), 2)

    alone, after, restored = serve(server, then)
    for one, other in zip(before.logprobs, after.logprobs, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    for sampled in (alone, restored):
        assert [one.ids for one in sampled] == [one.ids for one in found]


@pytest.mark.slow
def test_learner_lost_by_its_server_is_recovered_from(server):
    async def play(service):
        learner = await service.create(str(server.model), 8, seed=1)
        rows = rows_for(await answers(await learner.snapshot(), 2), (1.0, -1.0))
        kept, _ = await learner.save("kept", keep_days=0)
        before = await updated(learner, rows, learning_rate=0.0)
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        await asyncio.to_thread(server.start)
        with pytest.raises(LearnerLost):
            await or_lost(updated(learner, rows, learning_rate=0.0))
        service.renew()
        learner = await service.restore(kept)
        return before, await updated(learner, rows, learning_rate=0.0)

    before, after = serve(server, play)
    for one, other in zip(before.logprobs, after.logprobs, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
