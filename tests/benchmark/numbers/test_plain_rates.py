from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.benchmark.numbers.rates import fast_p, pass_at_k
from kernelgym.benchmark.numbers.speeds import geometric_mean_speedup
from kernelgym.errors import UsageError
from kernelgym.testing import verdict
from kernelgym.types import Verdict
from support.strategies import verdicts

MIXED = [
    verdict("correct", speedup=2.0),
    verdict("correct", speedup=1.0),
    verdict("correct", speedup=0.5),
    verdict("correct"),
    verdict("wrong"),
]


@pytest.mark.parametrize(
    ("p", "expected"), [(0, 0.8), (0.4, 0.6), (0.5, 0.4), (1, 0.2), (1.99, 0.2), (2, 0.0)]
)
def test_fast_p_is_strict(p: float, expected: float) -> None:
    assert fast_p(MIXED, p) == pytest.approx(expected)


def test_unavailable_verdicts_are_left_out() -> None:
    assert fast_p([*MIXED, verdict("unavailable")], 0) == fast_p(MIXED, 0)
    with pytest.raises(UsageError):
        fast_p([verdict("unavailable")], 0)
    with pytest.raises(UsageError):
        fast_p(MIXED, -1)


@given(st.lists(verdicts(), min_size=1).filter(lambda found: any(v.valid for v in found)))
def test_fast_p_falls_as_p_rises(found: list[Verdict]) -> None:
    rates = [fast_p(found, p) for p in (0, 0.5, 1, 2, 5)]
    assert rates == sorted(rates, reverse=True)
    assert 0.0 <= rates[-1] <= rates[0] <= 1.0


@given(st.integers(1, 8), st.data())
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_one(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    draws = [any(i < c for i in draw) for draw in combinations(range(n), k)]
    assert pass_at_k(n, c, k) == pytest.approx(sum(draws) / len(draws))


def test_pass_at_k_of_many_samples_is_finite() -> None:
    assert 0.0 < pass_at_k(1_000_000, 10, 1_000) < 1.0
    assert pass_at_k(10, 10, 3) == 1.0
    assert pass_at_k(10, 0, 10) == 0.0


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_pass_at_k_refuses_impossible_counts(n: int, c: int, k: int) -> None:
    with pytest.raises(UsageError, match="n="):
        pass_at_k(n, c, k)


def test_the_geometric_mean_takes_timed_verdicts_alone() -> None:
    assert geometric_mean_speedup(MIXED) == pytest.approx(1.0)
    with pytest.raises(UsageError):
        geometric_mean_speedup([verdict("wrong"), verdict("correct")])


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=400))
def test_the_geometric_mean_of_inverses_is_the_inverse(values: list[float]) -> None:
    mean = geometric_mean_speedup([verdict("correct", speedup=x) for x in values])
    inverse = geometric_mean_speedup([verdict("correct", speedup=1 / x) for x in values])
    assert mean * inverse == pytest.approx(1.0)
    assert math.isfinite(mean)
