from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.tokens import check_counter, cut_middle, estimate_tokens, fit


def pieces(text: str) -> int:
    """A tokenizer of uneven tokens: digits one each, other characters three at a time."""
    digits = sum(character.isdigit() for character in text)
    return digits + -(-(len(text) - digits) // 3)


def test_the_estimate_is_four_characters_a_token() -> None:
    assert [estimate_tokens("x" * n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


@given(st.text(max_size=600), st.integers(-3, 200), st.sampled_from((estimate_tokens, pieces, len)))
def test_what_is_cut_fits_and_what_fits_is_not_cut(text, budget, count) -> None:
    cut = fit(text, budget, count)
    assert count(cut) <= max(budget, 0)
    assert cut == fit(text, budget, count)
    if budget > 0 and count(text) <= budget:
        assert cut == text


@given(st.integers(50, 400))
def test_nearly_the_whole_budget_is_used(budget) -> None:
    assert estimate_tokens(fit("word " * 1_000, budget)) >= budget - 1
    assert pieces(fit("word 7 " * 1_000, budget, pieces)) >= budget * 0.85


@given(st.text(max_size=500), st.integers(0, 300))
def test_what_is_cut_is_the_middle(text: str, room: int) -> None:
    cut = cut_middle(text, room)
    assert len(cut) <= room
    assert cut == text or len(text) > room
    if len(text) > room > 80:
        assert cut[0] == text[0] and cut[-1] == text[-1]


@pytest.mark.parametrize("wrong", [None, 4, lambda: 3, lambda text: None, lambda text: 0])
def test_what_is_no_counter_is_refused(wrong: object) -> None:
    if wrong is not None and callable(wrong) and not wrong.__code__.co_argcount:
        with pytest.raises((UsageError, TypeError)):
            check_counter(wrong)
        return
    with pytest.raises(UsageError, match="token counter"):
        check_counter(wrong)


def test_a_counter_is_returned() -> None:
    assert check_counter(len) is len
