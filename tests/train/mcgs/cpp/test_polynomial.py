"""Polynomials: arithmetic agrees with numbers, and equal ones compare equal."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym_train.mcgs.cpp.polynomial import Polynomial

NAMES = ("i", "j", "n")
TERMS = st.lists(
    st.tuples(st.lists(st.sampled_from(NAMES), max_size=3), st.integers(-4, 4)), max_size=5
)
POLYNOMIALS = TERMS.map(Polynomial.of)
VALUES = st.fixed_dictionaries({name: st.integers(-5, 5) for name in NAMES})


def value(polynomial: Polynomial, values: dict[str, int]) -> int:
    found = polynomial.replaced({name: Polynomial.number(at) for name, at in values.items()})
    assert found.constant is not None
    return found.constant


@settings(max_examples=50)
@given(POLYNOMIALS, POLYNOMIALS, VALUES)
def test_polynomial_arithmetic_agrees_with_numbers(
    one: Polynomial, other: Polynomial, values: dict[str, int]
) -> None:
    left, right = value(one, values), value(other, values)
    assert value(one + other, values) == left + right
    assert value(one - other, values) == left - right
    assert value(one * other, values) == left * right


@given(POLYNOMIALS, POLYNOMIALS, POLYNOMIALS)
def test_polynomial_written_otherwise_is_equal(
    one: Polynomial, other: Polynomial, third: Polynomial
) -> None:
    assert (one + other) * third == third * other + one * third


@given(POLYNOMIALS)
def test_polynomial_coefficient_rebuilds_it(polynomial: Polynomial) -> None:
    factor = polynomial.coefficient("i")
    if factor is not None:
        assert factor * Polynomial.name("i") + polynomial.without(["i"]) == polynomial


def test_polynomial_square_has_no_coefficient() -> None:
    i = Polynomial.name("i")
    assert (i * i).coefficient("i") is None
