"""How searches share a budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import UsageError
from kernelgym_train.mcgs.sharing import expected_gain, first_shares, next_shares

WEIGHTS = st.dictionaries(st.text("abc", min_size=1), st.floats(0.01, 100), min_size=1, max_size=6)


@given(st.integers(1, 500), WEIGHTS)
def test_first_shares_are_half_or_the_least(budget: int, weights: dict[str, float]) -> None:
    if budget < 2 * len(weights):
        with pytest.raises(UsageError, match="give at least"):
            first_shares(budget, weights)
        return
    shares = first_shares(budget, weights)
    assert sum(shares.values()) == max(budget // 2, 2 * len(weights))
    assert min(shares.values()) >= 2 and shares.keys() == weights.keys()


@given(st.integers(1, 500), WEIGHTS, st.data())
def test_rounds_give_all_that_is_left(
    left: int, weights: dict[str, float], data: st.DataObject
) -> None:
    gains = {name: data.draw(st.floats(0.001, 1)) for name in weights}
    rounds = 0
    while left:
        given_now = sum(next_shares(left, weights, gains).values())
        assert 0 < given_now <= left
        left, rounds = left - given_now, rounds + 1
    assert rounds <= 10


def test_weight_and_gain_decide_a_share() -> None:
    alike = {"a": 0.1, "b": 0.1}
    assert next_shares(80, {"a": 3.0, "b": 1.0}, alike) == {"a": 30, "b": 10}
    assert next_shares(80, {"a": 1.0, "b": 1.0}, {"a": 0.1, "b": 0.3}) == {"a": 10, "b": 30}
    assert next_shares(7, {}, {}) == {}


def test_what_gained_late_is_expected_to_gain() -> None:
    early = [(0, 0.0), (2, 1.0)]
    late = [(0, 0.0), (9, 1.0)]
    assert expected_gain(late, 10) > 10 * expected_gain(early, 10) > 0
    assert expected_gain([(0, 0.0)], 100) < expected_gain([(0, 0.0)], 10)
