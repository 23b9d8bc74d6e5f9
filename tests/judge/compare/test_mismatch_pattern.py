"""Properties of the pattern finder: what it says is true, and what is plain it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.compare.mismatch_pattern import (
    MismatchCounts,
    MismatchRegion,
    MismatchStretch,
    find_region,
    pattern,
)

shapes = st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple)


def counted(along: np.ndarray, step: int) -> MismatchCounts:
    places = np.flatnonzero(along)
    padded = np.pad(along, (0, -len(along) % step)).reshape(-1, step).sum(1)
    return MismatchCounts(len(along), step, padded, int(places[0]), int(places[-1]))


def counts_of(
    wrong: np.ndarray, step: int = 1
) -> tuple[tuple[MismatchCounts, ...], MismatchCounts]:
    """Count along every axis by brute force."""
    axes = range(wrong.ndim)
    along = [wrong.sum(tuple(other for other in axes if other != axis)) for axis in axes]
    return (
        tuple(counted(np.atleast_1d(a), step) for a in along),
        counted(wrong.reshape(-1).astype(np.int64), step),
    )


def words(wrong: np.ndarray, step: int = 1) -> str:
    return pattern(wrong.shape, int(wrong.sum()), *counts_of(wrong, step))


def positions_of(stretch: MismatchStretch, size: int) -> np.ndarray:
    """Return, for each position of an axis, whether the stretch contains it."""
    inner = np.arange(size) % stretch.period if stretch.period else np.arange(size)
    inside = (inner >= stretch.start) & (inner < stretch.stop)
    return ~inside if stretch.inverted else inside


def elements_of(region: MismatchRegion) -> np.ndarray:
    """Return, for each element of the output, whether the region contains it."""
    if region.flat is not None:
        return positions_of(region.flat, math.prod(region.shape)).reshape(region.shape)
    inside = np.ones(region.shape, bool)
    for axis, (stretch, size) in enumerate(zip(region.axes, region.shape, strict=True)):
        if stretch is not None:
            beside = [1] * len(region.shape)
            beside[axis] = size
            inside &= positions_of(stretch, size).reshape(beside)
    return inside


@given(shapes, st.floats(0.001, 1.0), st.integers(0, 2**32), st.sampled_from((1, 2, 8)))
def test_whatever_is_claimed_holds_every_wrong_element(shape, share, seed, step) -> None:
    draw = np.random.default_rng(seed)
    wrong = draw.random(shape) < share
    # Strewn within a random box, so that there often is something to claim.
    box = tuple(
        slice(a := int(draw.integers(size)), int(draw.integers(a, size)) + 1) for size in shape
    )
    boxed = np.zeros(shape, bool)
    boxed[box] = wrong[box]
    for mask in (wrong, boxed):
        if not mask.any():
            continue
        count = int(mask.sum())
        region = find_region(shape, count, *counts_of(mask, step))
        assert isinstance(words(mask, step), str)
        if region is not None:
            inside = elements_of(region)
            assert inside[mask].all(), str(region)
            assert int(inside.sum()) == region.size < math.prod(shape)
            assert count >= 0.25 * region.size


@given(st.integers(2, 30), st.integers(2, 30), st.floats(0.02, 0.5), st.integers(0, 2**32))
def test_elements_strewn_at_random_make_no_pattern(rows, columns, share, seed) -> None:
    wrong = np.random.default_rng(seed).random((rows * 4, columns * 4)) < share
    if wrong.sum() > 40:
        assert words(wrong) == "scattered over the whole output"


def box(shape: tuple[int, ...], *index: object) -> np.ndarray:
    wrong = np.zeros(shape, bool)
    wrong[index] = True
    return wrong


def flat(shape: tuple[int, ...], start: int, stop: int) -> np.ndarray:
    wrong = np.zeros(math.prod(shape), bool)
    wrong[start:stop] = True
    return wrong.reshape(shape)


LAST = slice(-1, None)
ALL = slice(None)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (box((37, 131), ALL), "every element"),
        (box((37, 131), 4, 7), "a single element"),
        (box((37, 131), LAST), "only the last row"),
        (box((37, 131), 0), "only the first row"),
        (box((37, 131), 5), "only row 5"),
        (box((37, 131), slice(1, None)), "every row but the first"),
        (box((37, 131), slice(0, -1)), "every row but the last"),
        (box((37, 131), slice(-2, None)), "only the last 2 rows"),
        (box((37, 131), slice(32, None)), "only rows from 32 on"),
        (box((37, 131), slice(8, 20)), "only rows 8 to 19"),
        (box((37, 131), ALL, slice(64, None)), "only columns from 64 on"),
        (box((37, 131), ALL, slice(1, None, 2)), "only column 1 of every 2 columns"),
        (box((37, 131), ALL, [0, -1]), "only the first and the last column"),
        (
            box((37, 131), slice(32, None), slice(128, None)),
            "only the last 3 columns of rows from 32 on",
        ),
        (~box((37, 131), 5), "every row but row 5"),
        (~box((64, 128), ALL, slice(63, None, 64)), "only columns 0 to 62 of every 64 columns"),
        (box((4, 3, 16, 16), ALL, ALL, ALL, LAST), "only the last slice along axis 3"),
        (flat((37, 131), 4096, 4847), "only the last block of 4096 (elements 4096 to 4846) in "
         "row-major order"),
        (flat((37, 131), 0, 1024), "only the first block of 1024 elements in row-major order"),
        (flat((5000,), 4992, 5000), "only the last block of 128 (elements 4992 to 4999)"),
        (flat((5000,), 0, 4992), "only elements 0 to 4991"),
        (box((5000,), slice(0, None, 7)), "only element 0 of every 7 elements"),
        (flat((37, 131), 30, 4847), "only elements from 30 on in row-major order"),
        (~(box((90, 90), 3, 5) | box((90, 90), 55, 60)), "nearly every element"),
        (np.ones((1,), bool), ""),
        (np.ones((), bool), ""),
    ],
)  # fmt: skip
def test_what_is_plain_is_said(wrong: np.ndarray, told: str) -> None:
    assert words(wrong) == told


def test_a_region_half_of_which_is_right_by_chance_is_named_with_its_share() -> None:
    wrong = flat((37, 131), 4096, 4847) & (np.random.default_rng(0).random((37, 131)) < 0.5)
    assert words(wrong).startswith("only the last block of 4096 (elements 4096 to 4846) in")
    assert words(wrong).endswith("(46% of them)")


def test_positions_counted_together_still_name_the_block() -> None:
    wrong = flat((300_000,), 262_144, 300_000)
    assert words(wrong, 8) == "only the last block of 65536 (elements 262144 to 299999)"
