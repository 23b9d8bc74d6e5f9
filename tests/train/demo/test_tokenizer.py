"""The demonstration's tokens: lossless, within a line, and never a whole operator."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym import UsageError
from kernelgym.answers.parsing import parse
from kernelgym.prompts.short import question
from kernelgym.suites.synthetic import solve
from kernelgym.suites.synthetic.operators import OPERATORS
from kernelgym_train.demo.corpus import Example, first_answers, repairs
from kernelgym_train.demo.dialogue import answer_of
from kernelgym_train.demo.splits import Scope, Splits, draw_splits
from kernelgym_train.demo.tokenizer import (
    _TARGET,
    MODULE_TOKENS,
    PROMPT_TOKENS,
    is_answerable,
    texts_of,
    train_tokenizer,
    within_budget,
)
from kernelgym_train.rollout.huggingface_policy import ChatText


def holds_operator(line: str) -> bool:
    return re.match(_TARGET, line) is not None


@functools.cache
def splits() -> Splits:
    return draw_splits(0, Scope(300))  # half of the demonstration's problems


@functools.cache
def examples() -> tuple[Example, ...]:
    return (*first_answers(splits().warmstart, 0), *repairs(splits().warmstart, 0))


@functools.cache
def words() -> Any:
    return train_tokenizer(examples())


def encode(text: str) -> list[int]:
    ids: list[int] = words()(text, add_special_tokens=False)["input_ids"]
    return ids


def pieces(text: str) -> list[str]:
    return [words().decode([number]) for number in encode(text)]


PARTS = ("v = ", "tl.exp(", "x", "\n", "    ", "mask=mask", "1.0", " * ", "<|im_end|>", "é", "\r")


@pytest.mark.slow
@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PARTS)).map("".join)))
def test_any_text_comes_back(text: str) -> None:
    assert words().decode(encode(text)) == text


@pytest.mark.slow
def test_what_it_was_trained_on_comes_back() -> None:
    texts = texts_of(examples())
    assert len(set(texts)) == len(texts) > 1000
    for text in texts[::5]:
        assert words().decode(encode(text)) == text


@pytest.mark.slow
def test_no_token_reaches_across_a_line_break() -> None:
    for number in range(len(words())):
        assert "\n" not in words().decode([number])[:-1]


def held_out() -> list[str]:
    """Return right answers and questions that the tokenizer has not seen."""
    problems = (*splits().rl[:40], *splits().compositions, *splits().shapes)
    return [text for p in problems for text in (answer_of(solve(p).source), question(p)[0].content)]


@pytest.mark.slow
def test_no_token_covers_the_line_of_an_operator() -> None:
    texts = (*texts_of(examples()), *held_out())
    lines = {line.strip() for text in texts for line in text.split("\n") if holds_operator(line)}
    assert len(lines) > 300
    known = {words().decode([number]).strip() for number in range(len(words()))}
    assert not lines & known


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_each_operators_lines_are_told_apart(name: str) -> None:
    operator = OPERATORS[name]
    written = [f"    v = {operator.triton.format(0.5, 0.7, x='v', t='y_val')}"]
    written += [f"        out = {s.format(0.5, 0.7, x='out', t='y')}" for s in operator.torch]
    for line in written:
        assert holds_operator(line), line
        assert pieces(f"{line}\n")[0] in ("    v = ", "        out = ")


@pytest.mark.parametrize(
    "line",
    [
        "    v = tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        "    out = torch.empty_like(x)",
        "        out = run(x)",
        "    mask = offsets < n_elements",
        "import torch.nn.functional as F",
        "    x = torch.randn(rows, cols)",
    ],
)
def test_other_lines_hold_no_operator(line: str) -> None:
    assert not holds_operator(line)


def test_most_other_lines_of_an_answer_are_one_token() -> None:
    answer = next(e.answer for e in examples() if e.label == "right")
    assert "    return out\n" in pieces(answer)
    assert "import triton.language as tl\n" in pieces(answer)


@pytest.mark.slow
def test_answers_and_questions_are_within_budget() -> None:
    shown = draw_splits(0).warmstart
    every = (*first_answers(shown, 0), *repairs(shown, 0))
    tokens = train_tokenizer(every)

    def count(answer: str) -> int:
        return len(tokens(answer, add_special_tokens=False)["input_ids"])

    kept = within_budget(tokens, every)
    assert len(kept) >= 0.9 * len(every)
    asks = ChatText(tokens)
    for example in kept[::7]:
        assert count(example.answer) <= MODULE_TOKENS
        assert len(asks.prompt(example.messages[:1])[0]) <= PROMPT_TOKENS
    long = [e for e in every if count(e.answer) > MODULE_TOKENS]
    assert not set(long) & set(kept)


def test_a_problem_with_an_answer_within_budget_is_answerable() -> None:
    shown = {e.problem.id: e for e in within_budget(words(), examples()) if e.label == "right"}
    for example in list(shown.values())[:40:5]:
        asked = len(ChatText(words()).prompt(question(example.problem))[0])
        assert is_answerable(words(), example.problem, prompt_tokens=asked)
        assert not is_answerable(words(), example.problem, prompt_tokens=asked - 1)
        assert not is_answerable(words(), example.problem, module_tokens=20)


def test_a_problem_whose_answers_are_all_longer_is_not() -> None:
    tight = 45
    for problem in splits().warmstart[:60:6]:
        answers = [answer_of(solve(problem, style_seed=style).source) for style in range(16)]
        shortest = min(len(encode(answer)) for answer in answers)
        found = is_answerable(words(), problem, module_tokens=tight, prompt_tokens=1000)
        assert found == (shortest <= tight)


def test_what_composes_the_hidden_operator_are_tokens() -> None:
    known = {words().decode([number]) for number in range(len(words()))}
    composed = pieces("    v = v * 1.0 / (1.0 + tl.exp(-v))\n")
    assert composed[:2] == ["    v = ", "v * "]
    assert set(composed) <= known
    assert len(composed) <= 5, "few enough for chance to find"


def test_policies_take_it() -> None:
    text = ChatText(words())
    ids, opened = text.prompt(examples()[0].messages)
    assert not opened
    assert words().decode(ids).endswith("<|im_start|>assistant\n")
    answer = examples()[0].answer
    read = text.answer([*encode(answer), words().eos_token_id])
    assert read == answer
    assert parse(read, "triton").kernel is not None
    assert words().pad_token_id != words().eos_token_id


def test_it_is_the_same_again_and_after_saving(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    again = train_tokenizer(examples())
    assert again.get_vocab() == words().get_vocab()
    words().save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.chat_template == words().chat_template
    for text in texts_of(examples())[:40]:
        assert loaded(text)["input_ids"] == encode(text)


def test_a_size_without_room_is_refused() -> None:
    with pytest.raises(UsageError, match="more than 259"):
        train_tokenizer(examples()[:3], 259)
