"""Describes in words where wrong elements lie, from their counts along each axis. Pure.

The description names the smallest region of simple form that holds every wrong element: a stretch
of rows and columns, all rows but some, the same columns of every 64, or a stretch in row-major
order, where blocks of a kernel's grid begin and end. A region is named only if wrong elements fill
it well, and if elements scattered at random would hardly all have fallen into it.

Contract: the functions here receive positions and no values, so no value can leak.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int64]

_FILLED = 0.25  # share of wrong elements in a region: behind a relu, half are right by chance
# In nats: a region is named only if elements scattered at random would all fall into it less than
# once in e**10 times; `find_region` multiplies that by the number of places where a region could
# begin.
_SURPRISE = 10.0
_NEARLY_ALL = 0.95
_PERIODS = (2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256, 512, 1024)
_BLOCKS = tuple(2**power for power in range(16, 4, -1))
_LISTED = 3
_EDGE = 8


@dataclass(frozen=True, slots=True)
class MismatchCounts:
    """Numbers of wrong elements at the positions along one axis of an output."""

    size: int
    """Number of positions on the axis."""
    step: int
    """Number of neighbouring positions that are counted together."""
    counts: Numbers
    """Number of wrong elements in each group of `step` positions."""
    low: int
    """First position with a wrong element."""
    high: int
    """Last position with a wrong element."""


@dataclass(frozen=True, slots=True)
class MismatchStretch:
    """Positions along an axis: one range, all positions but one, or periodic ranges."""

    start: int
    stop: int
    period: int = 0
    """Period of a repeating pattern: `start` and `stop` bound positions modulo it; 0 for none."""
    inverted: bool = False

    def size(self, axis_size: int) -> int:
        """Return the number of positions of an axis that the stretch contains."""
        span = self.stop - self.start
        if self.period:
            whole, rest = divmod(axis_size, self.period)
            span = whole * span + max(0, min(rest, self.stop) - self.start)
        return axis_size - span if self.inverted else span


@dataclass(frozen=True, slots=True)
class MismatchRegion:
    """Region of an output: a stretch per axis (None for all), or one in row-major order."""

    shape: tuple[int, ...]
    axes: tuple[MismatchStretch | None, ...] = ()
    flat: MismatchStretch | None = None

    @property
    def size(self) -> int:
        """Number of elements in the region."""
        if self.flat is not None:
            return self.flat.size(math.prod(self.shape))
        sizes = (
            size if stretch is None else stretch.size(size)
            for size, stretch in zip(self.shape, self.axes, strict=True)
        )
        return math.prod(sizes)

    def __str__(self) -> str:
        total = math.prod(self.shape)
        if self.flat is not None:
            words = _stretch_words(self.flat, total, ("element", "elements", ""))
            return words if len(self.shape) == 1 else f"{words} in row-major order"
        parts = [
            _stretch_words(stretch, size, _axis_noun(axis, len(self.shape)))
            for axis, (size, stretch) in enumerate(zip(self.shape, self.axes, strict=True))
            if stretch is not None
        ]
        return " of ".join(reversed(parts))


def pattern(
    shape: Sequence[int], wrong: int, axes: Sequence[MismatchCounts], flat: MismatchCounts
) -> str:
    """Return in words where the wrong elements of an output lie.

    Args:
        shape: The output's shape.
        wrong: Number of wrong elements.
        axes: Counts along each axis.
        flat: Counts in row-major order.

    Returns:
        Words, for example ``only the last row``; empty for an output of one element.
    """
    total = math.prod(shape)
    if total <= 1 or wrong <= 0:
        return ""
    if wrong == total:
        return "every element"
    if wrong == 1:
        return "a single element"
    region = find_region(shape, wrong, axes, flat)
    if region is not None:
        words = str(region)
        some = "" if wrong == region.size else f" ({wrong / region.size:.0%} of them)"
        return f"{words if words.startswith('every') else f'only {words}'}{some}"
    if wrong >= _NEARLY_ALL * total:
        return "nearly every element"
    return "scattered over the whole output"


def find_region(
    shape: Sequence[int], wrong: int, axes: Sequence[MismatchCounts], flat: MismatchCounts
) -> MismatchRegion | None:
    """Return the smallest region with every wrong element; None if it could be chance."""
    shape = tuple(shape)
    total = math.prod(shape)
    best: MismatchRegion | None = None
    along = tuple(_smallest(counts) for counts in axes)
    candidates = [MismatchRegion(shape, along)] if any(along) else []
    candidates += [MismatchRegion(shape, (), stretch) for stretch in _candidates(flat)]
    for region in candidates:
        size = region.size
        if not wrong <= size < total or wrong < _FILLED * size:
            continue
        if _surprise(total, size, wrong) < _SURPRISE + math.log(total):
            continue
        if best is None or size < best.size:
            best = region
    # Elements at the edges of a block may be right by chance, so a block that is only a little
    # larger than the best region is the better name.
    spare = 0.0 if best is None else _EDGE * (best.size / wrong - 1)
    for stretch in _blocks(flat):
        region = MismatchRegion(shape, (), stretch)
        if best is not None and best.flat is not None and region.size <= best.size + spare:
            return region
    return best


def _surprise(total: int, size: int, wrong: int) -> float:
    """Return how unlikely a region is by chance, in nats (negative ln of the probability).

    That is, how unlikely it is that so many elements, scattered at random, all fall into it.
    """

    def ways(places: int) -> float:
        return math.lgamma(places + 1) - math.lgamma(places - wrong + 1)

    return ways(total) - ways(size)


def _smallest(counts: MismatchCounts) -> MismatchStretch | None:
    best: MismatchStretch | None = None
    for stretch in _candidates(counts):
        size = counts.size if best is None else best.size(counts.size)
        if stretch.size(counts.size) < size:
            best = stretch
    return best


def _blocks(flat: MismatchCounts) -> Iterator[MismatchStretch]:
    """Yield pairs (last, first) of blocks in row-major order that hold every wrong element.

    Blocks have a power of two of elements.
    """
    for block in _BLOCKS:
        start = (flat.size - 1) // block * block
        if 0 < start <= flat.low:
            yield MismatchStretch(start, flat.size)
        if flat.high < block < flat.size:
            yield MismatchStretch(0, block)


def _candidates(counts: MismatchCounts) -> Iterator[MismatchStretch]:
    """Yield stretches of an axis that hold every wrong element, the simplest first."""
    yield MismatchStretch(counts.low, counts.high + 1)
    here = counts.counts > 0
    if here.all():
        return
    yield from _gap(counts, here)
    places = np.flatnonzero(here)
    for period in _PERIODS:
        if 2 * period > len(here):
            return
        left = np.unique(places % period)
        run = int(left[-1]) - int(left[0]) + 1
        if len(left) == run < period:
            start, stop = int(left[0]) * counts.step, (int(left[-1]) + 1) * counts.step
            yield MismatchStretch(start, stop, period * counts.step)
        elif len(left) == period - 1:
            missing = int(np.setdiff1d(np.arange(period), left)[0])
            step = counts.step
            yield MismatchStretch(missing * step, (missing + 1) * step, period * step, True)


def _gap(counts: MismatchCounts, here: NDArray[np.bool_]) -> Iterator[MismatchStretch]:
    """Yield all positions of an axis but the longest run without a wrong element."""
    edges = np.diff(np.concatenate(([0], (~here).astype(np.int8), [0])))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    longest = int(np.argmax(stops - starts))
    start, stop = int(starts[longest]) * counts.step, int(stops[longest]) * counts.step
    if start > 0 and stop < counts.size:
        yield MismatchStretch(start, stop, inverted=True)


def _axis_noun(axis: int, axes: int) -> tuple[str, str, str]:
    if axes == 1:
        return "element", "elements", ""
    if axes == 2:
        return ("row", "rows", "") if axis == 0 else ("column", "columns", "")
    return "slice", "slices", f" along axis {axis}"


def _stretch_words(stretch: MismatchStretch, size: int, noun: tuple[str, str, str]) -> str:
    one, many, tail = noun
    start, stop = stretch.start, stretch.stop
    if stretch.period:
        named = f"{one} {start}" if stop - start == 1 else f"{many} {start} to {stop - 1}"
        but = "every one but " if stretch.inverted else ""
        return f"{but}{named} of every {stretch.period} {many}{tail}"
    if stretch.inverted:
        if size - (stop - start) == 2 and start == 1:
            return f"the first and the last {one}{tail}"
        return f"every {one}{tail} but {_range_words(start, stop, size, one, many)}"
    if start == 0 and stop == size - 1:
        return f"every {one}{tail} but the last"
    if start == 1 and stop == size:
        return f"every {one}{tail} but the first"
    if tail == "" and one == "element" and (block := _block_words(start, stop, size)):
        return block
    return _range_words(start, stop, size, one, many) + tail


def _block_words(start: int, stop: int, size: int) -> str:
    """Return words that describe a region as a last or first block; '' for other regions.

    Blocks have a power of two of elements.
    """
    for block in _BLOCKS:
        if stop == size and start == (size - 1) // block * block > 0:
            return f"the last block of {block} (elements {start} to {stop - 1})"
        if start == 0 and stop == block < size:
            return f"the first block of {block} elements"
    return ""


def _range_words(start: int, stop: int, size: int, one: str, many: str) -> str:
    length = stop - start
    edge = "the first" if start == 0 else "the last" if stop == size else ""
    if length == 1:
        return f"{edge} {one}" if edge else f"{one} {start}"
    if edge and length <= _LISTED:
        return f"{edge} {length} {many}"
    if stop == size:
        return f"{many} from {start} on"
    return f"{many} {start} to {stop - 1}"
