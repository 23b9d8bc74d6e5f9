"""The penalty for leaving the base model: what it is, and what a run does with it."""

from __future__ import annotations

import asyncio
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_train.backends.tinker.datums import datum_row, updates_of
from kernelgym_train.backends.tinker.reference import divergence, reference_logprobs
from kernelgym_train.backends.tinker.spending import Spending
from kernelgym_train.types import Key, Sample
from support import fake_tinker
from support.fake_tinker import Store

LOGPROB = st.floats(-20.0, 0.0)


@st.composite
def scored(draw):
    """Return samples and the base model's log-probabilities of their tokens."""
    pairs = draw(st.lists(st.lists(st.tuples(LOGPROB, LOGPROB), max_size=4), max_size=4))
    weights = draw(st.lists(st.floats(0.01, 1.0), min_size=len(pairs), max_size=len(pairs)))
    samples = [
        Sample(Key(0, n), (1,), tuple(range(len(own))), tuple(a for a, _ in own), 0.5, weight)
        for n, (own, weight) in enumerate(zip(pairs, weights, strict=True))
    ]
    return samples, [[b for _, b in own] for own in pairs]


def rows(folder, name="metrics.jsonl"):
    """Return a log's rows."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@given(scored())
def test_divergence_adds_nothing_to_the_whole_step(found):
    samples, base = found
    told = divergence(samples, base)
    assert told.kl >= -1e-12
    pairs = list(zip(samples, told.excess, strict=True))
    assert abs(sum(sample.weight * sum(excess) for sample, excess in pairs)) < 1e-9
    # Tokens keep their differences: only one number is taken off all of them.
    apart = [
        a - b
        for sample, own in zip(samples, base, strict=True)
        for a, b in zip(sample.logprobs, own, strict=True)
    ]
    flat = [value for _, excess in pairs for value in excess]
    assert all(abs((a - b) - (apart[0] - flat[0])) < 1e-9 for a, b in zip(apart, flat, strict=True))


@given(scored())
def test_divergence_from_itself_is_nothing(found):
    samples, _ = found
    told = divergence(samples, [sample.logprobs for sample in samples])
    assert told.kl == 0.0 and all(value == 0.0 for each in told.excess for value in each)


def test_estimate_is_the_divergence_on_average():
    policy, base = (0.7, 0.2, 0.1), (0.3, 0.3, 0.4)
    exact = sum(p * math.log(p / q) for p, q in zip(policy, base, strict=True))
    each = [
        divergence([Sample(Key(0, 0), (1,), (n,), (math.log(p),), 1.0, 1.0)], [[math.log(q)]]).kl
        for n, (p, q) in enumerate(zip(policy, base, strict=True))
    ]
    assert sum(p * kl for p, kl in zip(policy, each, strict=True)) == pytest.approx(exact)


def test_penalties_are_weighed_as_advantages_are():
    sample = Sample(Key(0, 0), (1, 2), (3, 4), (-1.0, -2.0), 0.5, 0.25)
    assert datum_row(sample, (0.5, -1.5)).advantages == (0.0, 0.0, 0.5)
    assert datum_row(sample).advantages == (0.0, 0.125, 0.125)
    with pytest.raises(ValueError, match="zip"):
        datum_row(sample, (0.5,))


def test_penalties_teach_without_an_advantage():
    flat = Sample(Key(0, 0), (1,), (2,), (-1.0,), 0.0, 0.5)
    assert updates_of([flat], 1) == [] and updates_of([flat], 1, penalised=True) == [(flat,)]


def test_step_without_signal_scores_nothing(tmp_path):
    from kernelgym.testing import verdict

    settings = fake_tinker.config(
        *("optimiser.steps=2", "optimiser.kl_beta=0.5", "env.max_turns=1", "reward.preset=sparse"),
        *("sampling.refill_rounds=0", "guards.no_signal=off"),
    )
    store = Store()
    fake_tinker.run(tmp_path / "run", settings, store, script=lambda *_: verdict("wrong"))
    assert store.updates == [] and store.scored == []


def test_kl_beta_holds_a_run_near_its_base_model(tmp_path):
    found = {}
    for beta in (1e-9, 1.0):
        store = Store()
        settings = fake_tinker.config(f"optimiser.kl_beta={beta}", "optimiser.steps=8")
        _, log, _ = fake_tinker.run(tmp_path / str(beta), settings, store)
        found[beta] = [row["train/kl"] for row in rows(log.folder)]
        assert len(store.scored) == sum(len(part) for part, _ in store.updates)
        assert found[beta][0] == pytest.approx(0.0, abs=1e-12), "a fresh adapter changes nothing"
    assert found[1.0][-1] < 0.5 * found[1e-9][-1]


def test_metric_is_left_out_without_the_term(tmp_path):
    store = Store()
    fake_tinker.run(tmp_path / "run", fake_tinker.config("optimiser.steps=2"), store)
    assert store.scored == [] and all("train/kl" not in row for row in rows(tmp_path / "run"))


def test_base_model_is_paid_for(tmp_path):
    store, spending = Store(), Spending(None)
    settings = fake_tinker.config("optimiser.steps=2", "optimiser.kl_beta=0.1")
    _, log, _ = fake_tinker.run(tmp_path / "run", settings, store, spending=spending)
    played = rows(log.folder, "tokens.jsonl")
    read = sum(len(row["prompt_ids"]) for row in played) + sum(map(sum, store.scored))
    assert spending.spent.prefill == read
    assert spending.spent.sample == sum(len(row["ids"]) for row in played) + len(store.scored)


def test_request_to_the_base_model_is_repeated_twice(tmp_path):
    settings = fake_tinker.config(
        "optimiser.steps=1", "optimiser.kl_beta=0.1", "sampling.at_once=1"
    )
    store = Store(unscored=2)
    fake_tinker.run(tmp_path / "one", settings, store)
    assert len(store.scored) == 2 + len(store.updates[0][0])
    store = Store(unscored=3)
    done, log, _ = fake_tinker.run(tmp_path / "two", settings, store)
    events = [row["event"] for row in rows(log.folder, "events.jsonl")]
    assert events.count("learner_lost") == 1 and done.steps == 1
    assert len(store.updates) == 1 and len(store.created) == 2, "nothing was learned before"


def test_requests_to_the_base_model_are_bounded():
    class Base:
        most = now = 0

        async def score(self, prompt, answer, *, limit_s):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return (-1.0,) * len(answer)

    samples = [Sample(Key(0, n), (1,), (2,) * n, (-1.0,) * n, 1.0, 1.0) for n in range(1, 7)]
    for at_once, most in ((2, 2), (None, 6)):
        base = Base()
        told = asyncio.run(reference_logprobs(base, samples, limit_s=1.0, at_once=at_once))
        assert [len(each) for each in told] == [1, 2, 3, 4, 5, 6] and base.most == most
