"""Where an output is wrong: counted right, told right, and never with a value of the reference."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.feedback import LEVELS, feedback
from kernelgym.judge.compare.compare import OutputComparison, byte_copy, compare
from kernelgym.judge.compare.mismatch import relation
from kernelgym.judge.compare.structure import describe_shape_of
from kernelgym.rulesets import RULESETS
from kernelgym.types import Mismatch, Reply, Status, Verdict
from support.programs import AFFINE, CPP, TRITON, replaced

STRICT, KERNELBENCH = RULESETS["strict"], RULESETS["kernelbench"]


def located(output, expected, rules=STRICT, precise=None) -> OutputComparison:
    claimed = describe_shape_of(expected)
    return compare(claimed, [byte_copy(output)], expected, precise, rules, locate=True)


def told(found: OutputComparison, level: str = "profile") -> str:
    verdict = Verdict(
        Status.WRONG,
        compiled=True,
        trials=9,
        max_abs_error=found.max_abs_error,
        max_rel_error=found.max_rel_error,
        message=f"9 of 9 calls failed; call 1 of 9: {found.message}",
        mismatch=found.mismatch,
    )
    return str(feedback(verdict, Reply(None), level=level))


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=0, max_size=4).map(tuple),
    st.integers(0, 2**32),
    st.floats(0.01, 1.0),
    st.booleans(),
    st.sampled_from((torch.float32, torch.int64, torch.bool, torch.complex64)),
)
def test_places_are_those_of_the_elements_that_differ(shape, seed, share, fixed, dtype) -> None:
    draw = torch.Generator().manual_seed(seed)
    wrong = torch.rand(shape, generator=draw) < share
    values = torch.randn(shape, generator=draw) * 5
    if dtype == torch.complex64:
        expected = torch.complex(values, values.flip(0) if shape else values)
        output = expected + 1000.0 * wrong
    elif dtype == torch.bool:
        expected, output = values > 0, (values > 0) ^ wrong
    else:
        expected = values.to(dtype)
        output = expected + (1000 * wrong).to(dtype)
    found = located(output, expected, KERNELBENCH if fixed else STRICT)
    assert found.passed == (not wrong.any())
    if found.passed:
        assert found.mismatch is None
        return
    where = found.mismatch
    assert where is not None
    indices = [tuple(int(i) for i in index) for index in np.argwhere(wrong.numpy())]
    assert where.shape == shape and where.differing == len(indices)
    assert where.first == tuple(indices[:4])
    assert where.worst_at is None or where.worst_at in indices
    if dtype.is_floating_point or dtype.is_complex:
        assert where.worst_at is not None
    assert Mismatch.from_dict(dataclasses.asdict(where)) == where


def test_it_is_looked_for_only_where_it_is_asked_for_and_in_the_first_wrong_output() -> None:
    good, bad = torch.ones(4), torch.zeros(4)
    claimed = describe_shape_of((good, good, good))
    both = ([good, bad, bad], (good, good, good), None, STRICT)
    assert compare(claimed, *both).mismatch is None
    found = compare(claimed, *both, locate=True).mismatch
    assert found is not None and (found.output, found.outputs) == (1, 3)


def test_the_largest_error_is_found_in_any_chunk() -> None:
    expected = torch.zeros(100_000)
    output = torch.zeros(100_000)
    output[::1000] = 1.0
    output[77_000] = 5.0
    found = located(output, expected, KERNELBENCH).mismatch
    assert found is not None and found.worst_at == (77_000,) and found.differing == 100


def test_a_large_output_is_described_by_stretches() -> None:
    expected = torch.randn(400, 1000, generator=torch.Generator().manual_seed(0))
    output = expected.clone().reshape(-1)
    output[65536 * 6 :] = 7.0
    found = located(output.reshape(400, 1000), expected).mismatch
    assert found is not None
    assert found.pattern == (
        "only the last block of 65536 (elements 393216 to 399999) in row-major order"
    )
    assert found.relation == "constant"


REFERENCE = np.random.default_rng(1).normal(size=200)


@pytest.mark.parametrize(
    ("output", "kind", "ratio"),
    [
        (REFERENCE * 2.03, "scaled", 2.0),
        (-REFERENCE, "scaled", -1.0),
        (REFERENCE + 0.731, "shifted", 0.0),
        (np.zeros(200), "zero", 0.0),
        (np.full(200, np.nan), "nan", 0.0),
        (np.full(200, 3.25), "constant", 0.0),
        (REFERENCE[::-1], "", 0.0),
        (np.where(np.arange(200) == 7, np.nan, REFERENCE), "", 0.0),
    ],
)
def test_relations(output: np.ndarray, kind: str, ratio: float) -> None:
    assert relation(output, REFERENCE) == (kind, ratio)


@given(st.floats(0.1, 100), st.floats(0.1, 100), st.floats(0, 0.02), st.integers(0, 2**32))
def test_no_factor_is_told_of_a_reference_that_is_nearly_constant(value, ours, noise, seed) -> None:
    """Else an output that is known would tell the reference's value by the factor between them."""
    draw = np.random.default_rng(seed)
    reference = value * (1 + noise * draw.normal(size=100))
    assert relation(ours * (1 + 1e-6 * draw.normal(size=100)), reference)[1] == 0.0
    assert relation(np.full(100, ours), reference)[1] == 0.0


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32), st.floats(0.05, 0.95))
def test_what_is_told_does_not_depend_on_the_references_values(one, other, share) -> None:
    """Two references, wrong at the same places by amounts of the same size: one and the same text.

    Errors are given and the rest drawn: nothing else of the values reaches the text.
    """
    wrong = torch.rand(30, 40, generator=torch.Generator().manual_seed(one)) < share
    texts = set()
    for seed in (one, other + 1):
        draw = torch.Generator().manual_seed(seed)
        expected = torch.randn(30, 40, generator=draw) * 0.1
        found = located(expected + 3.0 * wrong, expected, STRICT, expected.double())
        if found.passed:
            return
        # The relative error is taken from the reference's typical size, which varies a little.
        found = dataclasses.replace(
            found,
            max_abs_error=3.0,
            max_rel_error=1.0,
            mismatch=dataclasses.replace(found.mismatch, worst_at=(0, 0)),
        )
        texts.add(told(found))
    assert len(texts) == 1


@settings(deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(("zeros", "scaled", "shifted", "constant", "one element", "noise")),
    st.booleans(),
)
def test_told_numbers_have_a_digit_or_two(seed, fault, fixed) -> None:
    draw = torch.Generator().manual_seed(seed)
    expected = torch.randn(9, 7, generator=draw) * 37
    output = {
        "zeros": torch.zeros(9, 7),
        "scaled": expected * 1.5,
        "shifted": expected + 11.0,
        "constant": torch.full((9, 7), 2.5),
        "one element": torch.where(torch.arange(63).reshape(9, 7) == 30, 0.0, expected),
        "noise": torch.randn(9, 7, generator=draw),
    }[fault]
    found = located(output, expected, KERNELBENCH if fixed else STRICT)
    for level in LEVELS:
        text = told(found, level)
        for number, percent in re.findall(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)( %)?", text):
            digits = number.partition("e")[0].replace(".", "").strip("0")
            # A factor and a percentage have two digits, an error has one; whole numbers up to the
            # number of elements are counts and indices.
            few = percent or "." in number or float(number) <= output.numel()
            most = 2 if few else 1
            assert len(digits) <= most, number
        if level == "minimal":
            assert "[" not in text and "error" not in text


@pytest.mark.slow
def test_the_judge_says_where(strict) -> None:
    tail = strict.evaluate(AFFINE, replaced(CPP, "i < rows", "i < rows - 1"))
    assert tail.mismatch is not None
    assert tail.mismatch.pattern == "only the last row"
    assert (tail.mismatch.call, tail.mismatch.calls) == (1, tail.trials)
    assert tail.mismatch.shape == (37, 131) and tail.mismatch.first[0] == (36, 0)
    assert Verdict.from_dict(tail.to_dict()) == tail
    right = "tl.maximum(value, 0.0) * 2 + bias"
    thrice = strict.evaluate(AFFINE, replaced(TRITON, right, f"({right}) * 3"))
    assert thrice.mismatch is not None
    assert (thrice.mismatch.relation, thrice.mismatch.ratio) == ("scaled", 3.0)
    shape = strict.evaluate(AFFINE, replaced(TRITON, "return out", "return out[:, :5]"))
    assert shape.status is Status.WRONG and shape.mismatch is None
