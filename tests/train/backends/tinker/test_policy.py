"""Sampling on a Tinker service: a fake snapshot with faults, no server."""

from __future__ import annotations

import asyncio

import pytest

from kernelgym import Message, PolicyFailure, UsageError
from kernelgym.prices import Tokens
from kernelgym_train.backends.tinker.policy import TinkerPolicy
from kernelgym_train.backends.tinker.service import Answered, ServiceTimeout
from kernelgym_train.backends.tinker.spending import Spending
from kernelgym_train.rollout.huggingface_policy import ChatText, SamplingRule
from kernelgym_train.types import Key, PromptTooLong, SampleRequest


class FakeSnapshot:
    """Answers a request after as many failures as its seed is told to have."""

    def __init__(self, failures=None):
        self.failures = dict(failures or {})
        self.asked = []
        self.cancelled = 0

    async def sample(self, prompt, *, seed, stop, limit_s, **more):
        self.asked.append((seed, tuple(stop), limit_s, more))
        if self.failures.get(seed, 0):
            self.failures[seed] -= 1
            raise ServiceTimeout("no answer")
        try:
            await asyncio.sleep(3600 if seed < 0 else 0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Answered((4, 1), (-0.1, -0.2), stopped=seed % 2 == 0)


def policy(words, snapshot, **more):
    """Return a policy with the tiny tokenizer, for a model of 64 tokens."""
    options = {"stop": [1], "context": 64, "version": 7, "limit_s": 3.0, **more}
    return TinkerPolicy(snapshot, ChatText(words), SamplingRule(max_new_tokens=8), **options)


def request(number, seed):
    """Return the request of one trajectory's first turn."""
    return SampleRequest(Key(0, number), (Message("user", "say"),), seed)


def sampled(chosen, requests):
    """Return what came, by the request's index."""

    async def collect():
        return {index: found async for index, found in chosen.sample(requests)}

    return asyncio.run(collect())


def test_completion_keeps_what_the_service_gave(words):
    snapshot = FakeSnapshot()
    found = sampled(policy(words, snapshot), [request(0, 10), request(1, 11)])
    assert found[0].ids == (4, 1) and found[0].logprobs == (-0.1, -0.2)
    assert [found[0].finish, found[1].finish] == ["stop", "length"]
    assert found[0].policy_version == 7
    assert found[0].prompt_ids == ChatText(words).prompt(request(0, 10).messages)[0]
    seed, stop, limit, more = snapshot.asked[0]
    assert (seed, stop, limit) == (10, (1,), 3.0)
    assert more == {"max_tokens": 8, "temperature": 1.0, "top_p": 1.0}


def test_failed_answer_is_asked_again_with_its_seed(words):
    snapshot = FakeSnapshot({10: 2})
    chosen = policy(words, snapshot)
    assert sampled(chosen, [request(0, 10)])[0].ids == (4, 1)
    assert [asked[0] for asked in snapshot.asked] == [10, 10, 10]


def test_answers_given_are_counted_as_spent(words):
    spending = Spending(None)
    chosen = policy(words, FakeSnapshot({10: 1}), spending=spending)
    found = sampled(chosen, [request(0, 10), request(1, 11)])
    prompts = sum(len(each.prompt_ids) for each in found.values())
    assert spending.spent == Tokens(prefill=prompts, sample=4)
    with pytest.raises(PolicyFailure):
        sampled(policy(words, FakeSnapshot({12: 3}), spending=spending), [request(2, 12)])
    assert spending.spent.sample == 4


def test_third_failure_is_a_policy_failure(words):
    chosen = policy(words, FakeSnapshot({10: 3}))
    with pytest.raises(PolicyFailure, match=r"\(0, 0, 0, 0\) in 3 attempts: ServiceTimeout"):
        sampled(chosen, [request(0, 10)])


def test_prompt_beyond_the_context_is_refused(words):
    with pytest.raises(PromptTooLong, match="do not fit into the model's context of 9"):
        sampled(policy(words, FakeSnapshot(), context=9), [request(0, 10)])


def test_top_k_is_refused(words):
    with pytest.raises(UsageError, match="top_k=3"):
        TinkerPolicy(
            *(FakeSnapshot(), ChatText(words), SamplingRule(top_k=3)),
            **{"stop": [1], "context": None, "version": 0, "limit_s": 1.0},
        )


def test_answers_under_way_are_cancelled_when_left(words):
    snapshot = FakeSnapshot()
    chosen = policy(words, snapshot)

    async def leave():
        found = chosen.sample([request(0, 10), request(1, -1)])
        async for index, _ in found:
            assert index == 0
            break
        await found.aclose()
        await asyncio.sleep(0)

    asyncio.run(leave())
    assert snapshot.cancelled == 1
