"""Collects where one failing call's output is wrong, and how wrong values relate to right ones.

The output comes chunk by chunk. Collecting takes a few passes over the wrong elements, so callers
ask for it only to explain a failure (see `compare`). Memory does not grow with the output: along
each axis counts are kept for at most 65536 stretches of positions, and about 4096 pairs of values
are kept in all.

Contract: only a `Mismatch` leaves this module. It tells places and sizes, and one factor where the
reference's values vary so much that the factor does not reveal them.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from kernelgym.judge.compare.mismatch_pattern import MismatchCounts, pattern
from kernelgym.verdict import Mismatch, Relation

Values: TypeAlias = NDArray[np.float64]

_STRETCHES = 1 << 16
_AT_ONCE = 1 << 22  # temporaries of 32 MB each
_FIRST = 4
_SAMPLE, _SAMPLE_OF_CHUNK = 4096, 256
_LEAST_SAMPLE = 16
_ALIKE = 0.02  # of the factor or the difference
_VARIED = 0.1  # of the reference's typical magnitude


class MismatchPlaces:
    """Positions of the wrong elements of one output, collected while chunks are compared.

    Args:
        shape: The output's shape.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        total = math.prod(shape)
        self._shape, self._total = shape, total
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        self._axes = [*(_Axis(*pair) for pair in zip(shape, strides, strict=True))]
        self._axes.append(_Axis(total, 1))
        self._first: list[int] = []
        self._worst, self._worst_at = -1.0, -1
        self._pairs: list[tuple[Values, Values]] = []
        self._sampled = 0

    def add(
        self,
        start: int,
        wrong: torch.Tensor,
        out: torch.Tensor,
        ref: torch.Tensor,
        error: torch.Tensor | None,
    ) -> None:
        """Add a chunk's wrong elements; the chunk begins at element `start` of the output.

        Args:
            start: The number, in row-major order, of the chunk's first element.
            wrong: Whether each element is wrong; at least one is.
            out: Values that the kernel wrote, as flat numbers: one per element, or two (complex).
            ref: Values of the reference, in the same form.
            error: Absolute differences, all finite; None for integers and booleans.
        """
        inside = wrong.nonzero().reshape(-1)
        if len(self._first) < _FIRST:
            self._first += [start + int(i) for i in inside[: _FIRST - len(self._first)]]
        if error is not None:
            sizes = error.reshape(len(wrong), -1).amax(1)[inside]
            at = int(sizes.argmax())
            if float(sizes[at]) > self._worst:
                self._worst, self._worst_at = float(sizes[at]), start + int(inside[at])
        if out.numel() == len(wrong) and self._sampled < _SAMPLE:
            chosen = inside[:: max(1, len(inside) // _SAMPLE_OF_CHUNK)][:_SAMPLE_OF_CHUNK]
            pair = (out[chosen].double().cpu().numpy(), ref[chosen].double().cpu().numpy())
            self._pairs.append(pair)
            self._sampled += len(chosen)
        for numbers in inside.add_(start).split(_AT_ONCE):
            for axis in self._axes:
                axis.add(numbers)

    def mismatch(self, wrong: int, strange: int) -> Mismatch:
        """Return the mismatch that the compared chunks have shown.

        Args:
            wrong: Number of wrong elements.
            strange: Number of wrong elements that are not finite where the reference is.
        """
        *axes, flat = (axis.result() for axis in self._axes)
        known = self._worst > 0.0
        kind: Relation = ""
        ratio = 0.0
        if self._pairs:
            out, ref = (np.concatenate(side) for side in zip(*self._pairs, strict=True))
            kind, ratio = relation(out, ref)
        return Mismatch(
            wrong,
            self._shape,
            tuple(self._index(number) for number in self._first),
            self._index(self._worst_at) if known else None,
            strange,
            pattern(self._shape, wrong, axes, flat),
            kind,
            ratio,
        )

    def _index(self, number: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(number, self._shape))


class _Axis:
    def __init__(self, size: int, stride: int) -> None:
        self._size, self._stride = size, stride
        self._step = 1
        while self._size > self._step * _STRETCHES:
            self._step *= 2
        self._length = -(-size // self._step)
        self._counts: torch.Tensor | None = None
        self._low, self._high = size, -1

    def add(self, numbers: torch.Tensor) -> None:
        """Count wrong elements, given by their ascending numbers in row-major order."""
        places = numbers.div(self._stride, rounding_mode="floor")
        first, last = int(places[0]), int(places[-1])
        ascends = first // self._size == last // self._size
        places = places.remainder_(self._size)
        low, high = (first % self._size, last % self._size) if ascends else _ends(places)
        self._low, self._high = min(self._low, low), max(self._high, high)
        if self._step > 1:
            places = places.div_(self._step, rounding_mode="floor")
        if self._counts is None:
            self._counts = places.new_zeros(self._length)
        if ascends:
            # A GPU's `bincount` would add millions to a few counters, one after the other.
            found, counts = torch.unique_consecutive(places, return_counts=True)
            self._counts.index_add_(0, found, counts)
        else:
            self._counts += torch.bincount(places, minlength=self._length)

    def result(self) -> MismatchCounts:
        """Return the counts of wrong elements along this axis."""
        assert self._counts is not None
        counts = self._counts.cpu().numpy()
        return MismatchCounts(self._size, self._step, counts, self._low, self._high)


def _ends(places: torch.Tensor) -> tuple[int, int]:
    return int(places.min()), int(places.max())


def relation(out: Values, ref: Values) -> tuple[Relation, float]:
    """Return how wrong values relate to right ones, such as ``scaled``, and the factor.

    The factor is 0 for any other relation. A factor is returned only if the reference's values vary
    by more than a tenth of their typical size: of a reference that is the same everywhere, the
    factor would reveal the value. The size of a constant difference is never returned.
    """
    if np.isnan(out).all():
        return "nan", 0.0
    if (out == 0).all():
        return "zero", 0.0
    if len(out) < _LEAST_SAMPLE:
        return "", 0.0
    if (out == out[0]).all():
        return "constant", 0.0
    if not (np.isfinite(out).all() and np.isfinite(ref).all()):
        return "", 0.0
    typical = float(np.median(np.abs(ref)))
    low, high = np.quantile(ref, (0.1, 0.9))
    if not typical or high - low < _VARIED * typical:
        return "", 0.0
    sized = np.abs(ref) > 1e-3 * typical
    factor = float(np.median(out[sized] / ref[sized]))
    if np.all(np.abs(out - factor * ref) <= _ALIKE * np.abs(factor * ref) + 1e-3 * typical):
        return "scaled", float(f"{factor:.2g}")
    shift = float(np.median(out - ref))
    if np.all(np.abs(out - ref - shift) <= _ALIKE * abs(shift)):
        return "shifted", 0.0
    return "", 0.0
