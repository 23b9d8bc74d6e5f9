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
    assert found is not None and found.constant is not None
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


def test_square_of_squares_is_too_large_to_compute_with() -> None:
    numbers: dict[str, Polynomial | None] = {"a0": Polynomial.of([(("i",), 3), (("n",), 1)])}
    for number in range(30):
        last = Polynomial.name(f"a{number}")
        numbers[f"a{number + 1}"] = (last * last).replaced(numbers)
    assert numbers["a3"] is not None and numbers["a30"] is None
