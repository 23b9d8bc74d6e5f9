"""Policies that are a model: templates, thinking, ends, seeds, log-probabilities."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import Message, UsageError
from kernelgym.answers.parsing import parse
from kernelgym_train.rollout.huggingface_policy import (
    ChatText,
    HFPolicy,
    SamplingRule,
    by_length,
    end_ids,
    refuse_long_prompts,
)
from kernelgym_train.types import Key, PromptTooLong, SampleRequest
from support import tiny

pytestmark = pytest.mark.usefixtures("one_thread")

ASKED = (Message("system", "s"), Message("user", tiny.LINES[0]))


@pytest.fixture
def model(words: Any) -> Any:
    return tiny.model(len(words))


def requests(count: int, seed: int = 0) -> list[SampleRequest]:
    return [
        SampleRequest(
            Key(0, 0, number),
            (Message("system", "s"), Message("user", " ".join(tiny.LINES[: 1 + number % 5]))),
            seed + number,
        )
        for number in range(count)
    ]


def test_the_template_decides_what_is_read(words: Any) -> None:
    ids, opened = ChatText(words).prompt(ASKED)
    assert words.decode(ids).startswith("<|im_start|>") and opened == ""
    begin = words.convert_tokens_to_ids("<|im_start|>")
    assert [place for place, number in enumerate(ids) if number == begin][-1] > len(ids) - 5


def test_a_thinking_block_that_the_template_opens_belongs_to_the_answer(words: Any) -> None:
    text = ChatText(words, {"think": True})
    ids, opened = text.prompt(ASKED)
    assert opened == "<think>\n"
    line = words.convert_tokens_to_ids(tiny.LINES[0])
    close = words.convert_tokens_to_ids("</think>")
    closed = parse(text.answer([line, close, line, 1], opened), "triton")
    assert closed.thought == tiny.LINES[0].strip() and closed.kernel is not None
    never = parse(text.answer([line, line], opened), "triton")
    assert never.kernel is None and "unclosed_think" in never.defects
    assert words.decode(ids[-2:]) == opened, "the prompt holds it; nothing is put into the answer"


def test_special_tokens_are_left_out_but_not_the_tags(words: Any) -> None:
    words.add_special_tokens({"additional_special_tokens": ["<think>", "</think>", "<extra>"]})
    text = ChatText(words)
    names = ["<think>", tiny.LINES[0], "</think>", "<extra>", "<KERNEL>", "<|im_end|>", "<pad>"]
    ids = [words.convert_tokens_to_ids(name) for name in names]
    assert text.answer(ids) == f"<think>{tiny.LINES[0]}</think><KERNEL>"


def test_a_template_without_a_system_turn_gets_it_in_the_first_message(words: Any) -> None:
    words.chat_template = (
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no') }}"
        "{% endif %}[{{ m['role'] }}:{{ m['content'] }}]{% endfor %}"
    )
    assert ChatText(words)._render(ASKED) == f"[user:s\n\n{tiny.LINES[0]}]"
    words.chat_template = "{{ raise_exception('never') }}"
    with pytest.raises(UsageError, match="never"):
        ChatText(words)
    words.chat_template = None
    with pytest.raises(UsageError, match="no chat template"):
        ChatText(words)


def test_the_same_requests_give_the_same_ids(words: Any, model: Any) -> None:
    import torch

    policy = HFPolicy(model, words, SamplingRule(8))
    torch.manual_seed(1)
    first = policy.generate(requests(6))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert policy.generate(requests(6)) == first
    assert torch.equal(torch.get_rng_state(), before), "the trainer's generator is left alone"
    assert policy.generate(requests(6, seed=50)) != first


def test_left_padding_changes_no_greedy_answer(words: Any, model: Any) -> None:
    greedy = SamplingRule(8, temperature=0.0)
    together = HFPolicy(model, words, greedy, batch=64).generate(requests(7))
    alone = HFPolicy(model, words, greedy, batch=1).generate(requests(7))
    assert [each.ids for each in together] == [each.ids for each in alone]
    assert [each.prompt_ids for each in together] == [each.prompt_ids for each in alone]


def test_ends_and_limits(words: Any, model: Any) -> None:
    answers = HFPolicy(model, words, SamplingRule(8), version=3).generate(requests(40))
    assert {each.finish for each in answers} == {"stop", "length"}
    for each in answers:
        assert (each.ids[-1] == 1) == (each.finish == "stop")
        assert 1 not in each.ids[:-1]
        assert each.finish == "stop" or len(each.ids) == 8
        assert each.policy_version == 3 and each.logprobs is None


def test_it_leaves_the_model_as_it_was(words: Any, model: Any) -> None:
    model.train()
    HFPolicy(model, words, SamplingRule(2)).generate(requests(1))
    assert model.training


def test_prompts_too_long_for_the_context_are_named(words: Any, model: Any) -> None:
    policy = HFPolicy(model, words, SamplingRule(8))
    lengths = [len(one.prompt_ids) for one in policy.generate(requests(5))]
    model.config.max_position_embeddings = max(lengths) - 1 + 8
    with pytest.raises(PromptTooLong, match=f"context of {max(lengths) + 7}") as refused:
        policy.generate(requests(5))
    assert refused.value.places == tuple(i for i, n in enumerate(lengths) if n == max(lengths))
    assert pickle.loads(pickle.dumps(refused.value)).places == refused.value.places


@given(st.lists(st.integers(0, 50)), st.integers(1, 20), st.none() | st.integers(1, 60))
def test_only_prompts_without_room_are_refused(
    lengths: list[int], answer: int, context: int | None
) -> None:
    try:
        refuse_long_prompts(lengths, answer, context)
        places: tuple[int, ...] = ()
    except PromptTooLong as refused:
        places = refused.places
        assert places and str(context) in str(refused)
    for place, length in enumerate(lengths):
        assert (place in places) == (context is not None and length + answer > context)


def test_every_end_that_the_model_declares_counts(words: Any, model: Any) -> None:
    model.generation_config.eos_token_id = [7, 1]
    assert end_ids(model, words) == (1, 7)
    model.generation_config.eos_token_id = None
    words.eos_token = None
    with pytest.raises(UsageError, match="ends an answer"):
        end_ids(model, words)


def test_batches_hold_like_lengths_and_every_index_once() -> None:
    batches = list(by_length([3, 9, 1, 9, 4], 2))
    assert batches == [[1, 3], [4, 0], [2]]


@pytest.mark.parametrize(
    "options", [{"max_new_tokens": 0}, {"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -1}]
)
def test_nonsense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        SamplingRule(**options)
