"""Fitting a model on answers, and what a model reads in episodes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import UsageError
from kernelgym.answers.parsing import parse
from kernelgym.feedback import feedback
from kernelgym.prompts.short import ShortObserver
from kernelgym.types import Score, Status, Turn, Verdict
from kernelgym_train.demo.corpus import Example, first_answers, repairs
from kernelgym_train.demo.model import ModelSize, build_model, parameter_count
from kernelgym_train.demo.splits import Scope, draw_splits
from kernelgym_train.demo.tokenizer import train_tokenizer
from kernelgym_train.demo.warmstart import FitRule, batches_of, encode, fit
from kernelgym_train.models import weights_digest
from kernelgym_train.rollout.huggingface_policy import ChatText

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = ModelSize(hidden=32, layers=1, heads=2, key_value_heads=1, feed_forward=32, context=1024)


@pytest.fixture(scope="module")
def examples() -> tuple[Example, ...]:
    problems = draw_splits(0, Scope(300)).warmstart[:24]
    return (*first_answers(problems, 0, 2), *repairs(problems, 0, 1))


@pytest.fixture(scope="module")
def tokens(examples: tuple[Example, ...]) -> Any:
    return train_tokenizer(examples, 800)


@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=60),
    st.integers(40, 400),
    st.integers(0, 9),
)
def test_batches_hold_every_example_once_and_no_more_than_fits(
    lengths: list[int], most: int, seed: int
) -> None:
    found = list(batches_of(lengths, most, random.Random(seed)))
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    for batch in found:
        width = max(lengths[index] for index in batch)
        assert len(batch) == 1 or width * len(batch) <= most


def test_a_fitted_model_gives_the_answer(examples: tuple[Example, ...], tokens: Any) -> None:
    """Of one example, read often: greedy sampling gives it back, its end included."""
    import torch

    model = build_model(tokens, TINY, seed=1)
    rule = FitRule(epochs=150, learning_rate=1e-2)
    done = fit(model, tokens, examples[:1], rule)
    assert done.loss < 0.05 and done.epochs == 150
    read, answer = encode(ChatText(tokens), examples[0])
    assert answer[-1] == tokens.eos_token_id
    assert done.tokens == 150 * len(answer), "what is read is not learned"
    out = model.eval().generate(
        torch.tensor([read]),
        attention_mask=torch.ones(1, len(read), dtype=torch.long),
        max_new_tokens=len(answer),
        do_sample=False,
    )
    assert tuple(out[0, len(read) :].tolist()) == answer


def test_seeds_decide_every_weight(examples: tuple[Example, ...], tokens: Any) -> None:
    def digest(made: int, order: int) -> str:
        model = build_model(tokens, TINY, seed=made)
        fit(model, tokens, examples, FitRule(epochs=1), seed=order)
        return weights_digest(model)

    first = digest(0, 0)
    assert digest(0, 0) == first
    assert digest(1, 0) != first and digest(0, 1) != first


def test_torch_s_generator_is_left_alone(tokens: Any) -> None:
    import torch

    before = torch.get_rng_state()
    build_model(tokens, TINY, seed=3)
    assert torch.equal(before, torch.get_rng_state())


def test_time_ends_a_fitting(examples: tuple[Example, ...], tokens: Any) -> None:
    seen = []
    done = fit(
        build_model(tokens, TINY),
        tokens,
        examples,
        FitRule(epochs=1000, seconds=0.3),
        progress=seen.append,
    )
    assert 0 < done.epochs < 1000 and done.batches == len(seen)
    assert seen[-1].batches == len(seen) and seen[-1].of > len(seen)


def test_what_cannot_be_fitted_is_refused(examples: tuple[Example, ...], tokens: Any) -> None:
    model = build_model(tokens, TINY)
    with pytest.raises(UsageError, match="at least one example"):
        fit(model, tokens, ())
    model.config.max_position_embeddings = 20
    with pytest.raises(UsageError, match="context ends at 20"):
        fit(model, tokens, examples)
    with pytest.raises(UsageError, match="at least 1"):
        FitRule(epochs=0)
    with pytest.raises(UsageError, match="heads"):
        ModelSize(hidden=30, layers=1, heads=4, key_value_heads=4, feed_forward=8, context=8)


def test_a_model_has_the_size_asked_for(tokens: Any) -> None:
    model = build_model(tokens, TINY)
    vocabulary = 2 * len(tokens) * 32
    assert vocabulary < parameter_count(model) < vocabulary + 20_000
    assert model.lm_head.weight is not model.get_input_embeddings().weight


def test_episodes_read_as_the_warm_start_did(examples: tuple[Example, ...]) -> None:
    observer = ShortObserver("triton", "cpu", "strict", 3)
    second = next(e for e in examples if len(e.messages) == 3 and "IndexError" in str(e.messages))
    assert observer.observe(second.problem) == second.messages[:1]
    answer = second.messages[1].content
    reply = parse(answer, "triton")
    failed = Verdict(
        Status.RUNTIME_ERROR, compiled=True, message="IndexError: out-of-bounds load", trials=4
    )
    told = feedback(failed, reply, level="minimal")
    turns = [Turn(n, answer, reply, failed, told, Score(0.0)) for n in range(2)]
    assert observer.observe(second.problem, turns[:1]) == second.messages
    assert observer.observe(second.problem, turns) == second.messages, "the last answer alone"
