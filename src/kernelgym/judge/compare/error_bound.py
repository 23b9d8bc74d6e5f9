"""Computes error bounds, and finds the elements that exceed them, on flat tensors.

The bound of ``fp64`` is ``factor * e + floor * (|ref64| + typical)`` at every element (see
`compare`), and beside it one on the root mean square (RMS) of all relative errors
``(out - ref64) / (|ref64| + typical)``. Single elements of an honest kernel may err much more than
the reference's, but all of them together do not, and a lower precision makes all of them err.

Both come from the reference and its fp64 twin, either over whole outputs or over some rows of them.
In the second case outputs are compared with the reference itself, which may differ from the truth
by its own error, so that much is added.

The functions here work through tensors in chunks, on the tensors' own device, so that the memory
they need is bounded.

Not covered: structure, shapes and types (`structure`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from kernelgym.judge.compare.fused import fused_for
from kernelgym.judge.compare.mismatch import MismatchPlaces
from kernelgym.rulesets import ErrorFactors, Ruleset

Pair = tuple[torch.Tensor, torch.Tensor]
"""The reference's output and the right values, both flat."""

# Elements. On the CPU a chunk stays in the processor's cache and below torch's threshold for
# threads. On CUDA chunks are large, to wait for the device seldom, with temporaries below 1 GB.
_CHUNK = {"cpu": 1 << 15, "cuda": 1 << 24}
_LANES = {"cpu": 1, "cuda": 512}  # copies of the bins, so that threads do not queue for one
_BINS = 1 << 11  # one per binary exponent of an fp64 number; bin 0 holds zeros
_NEIGHBOURS = 2  # an element is allowed the own errors of elements up to two octaves larger
_POPULATION = 16  # the 16 smallest elements always share their own errors
_SAMPLE = 1 << 20
_GRAINS = {"fp16": 2.0**-10, "bf16": 2.0**-7}
_HALF_DISTRUST = 16  # times the grain: several roundings to fp16 in one model exceed four
_GRAIN_SHARE = 1 / 3  # RMS error of three roundings, relative to the grain
_GRAINS_AT_ONE = 4.0  # honest kernels round what they add up, as the weights of an attention
_FLOOR_SHARE = 1 / 40  # of the floor at one element, times the factor
_LEAST_FACTOR = 4.0
# A small value may be a difference of numbers near one, as ``exp(x) - 1`` is: the RMS error may be
# a grain of fp32 at one, as long as that is far below what a lower precision does.
_GRAIN_AT_ONE = 2.0**-23
_MOST_AT_ONE = 1e-5  # relative to the typical magnitude
_LEAST_FOR_RMS = 16  # elements; of fewer, the reference's own may be right by chance
_CHANCE = 4.0  # over the root of the number of elements: how much RMS errors differ by chance
_OUTLYING = 16.0  # times the median of what is allowed beside the bound
_SMALLEST, _LARGEST = 1e-30, 1e30  # magnitudes safe in the fp32 arguments of `fused_kernels`
TINY = 2.0**-126
"""The smallest normal fp32 number: kernels may flush smaller ones to zero."""


def _chunk_of(tensor: torch.Tensor) -> int:
    return _CHUNK.get(tensor.device.type, _CHUNK["cpu"])


@dataclass(slots=True)
class ErrorDifference:
    """Differences between one output and the right values, added up chunk by chunk."""

    parts: int = 1
    """Number of real numbers in an element: two for complex tensors, else one."""
    count: int = 0
    """Number of elements that differ by more than the bound."""
    first: int = -1
    """Number of the first element whose error exceeds the bound; -1 if there is none."""
    strange: int = 0
    """Number of elements outside the bound that are not finite where the reference is."""
    worst_abs: float = 0.0
    worst_rel: float = 0.0
    places: MismatchPlaces | None = None
    """Collector of the places of elements outside the bound; if None, the comparison stops after
    the first chunk with such an element."""
    is_partial: bool = False
    """Whether chunks were skipped that may hold more elements outside the bound."""
    rms: float = 0.0
    """Root mean square of the relative errors, if every element is within its bound."""
    is_coarse: bool = False
    """Whether the root mean square of the errors exceeds its own bound."""

    def chunks(self, tensor: torch.Tensor) -> Iterator[slice]:
        """Yield the chunks of a flat tensor, until enough is known."""
        step = _chunk_of(tensor)
        for start in range(0, tensor.numel(), step):
            if self.count and self.places is None:
                self.is_partial = True
                return
            yield slice(start, start + step)

    def add(
        self,
        start: int,
        wrong: torch.Tensor,
        out: torch.Tensor,
        ref: torch.Tensor,
        error: torch.Tensor | None = None,
    ) -> None:
        """Compare the chunk that begins at element `start`, and count its wrong elements."""
        joined = wrong.reshape(-1, self.parts).any(1)
        found = int(joined.sum())
        if not found:
            return
        if self.first < 0:
            self.first = start // self.parts + int(joined.to(torch.uint8).argmax())
        self.count += found
        if out.is_floating_point():
            odd = (~out.isfinite() & ref.isfinite()).reshape(-1, self.parts).any(1)
            self.strange += int(odd.sum())
        if self.places is not None:
            self.places.add(start // self.parts, joined, out, ref, error)


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """Largest allowed error at each element of an output.

    At every element: ``slack[bin of ref64] + relative * |ref64|``.
    """

    slack: torch.Tensor
    relative: float
    typical: float
    rms: float = math.inf
    """Largest allowed root mean square of the errors relative to ``|ref64| + typical``."""

    @property
    def least(self) -> float:
        """Magnitude that errors are taken relative to: the typical one, but never near `TINY`."""
        return max(self.typical, _SMALLEST)


def _bins_of(size: torch.Tensor) -> torch.Tensor:
    """Return the exponent bits of non-negative fp64 numbers."""
    return (size.view(torch.int64) >> 52).bitwise_and_(_BINS - 1)


def _typical(truths: list[torch.Tensor]) -> float:
    """Return the median of the non-zero finite magnitudes, from a sample."""
    # An odd step: an even one might sample only some columns of a matrix.
    step = max(1, -(-sum(t.numel() for t in truths) // _SAMPLE)) | 1
    sample = torch.cat([truth.detach()[::step].double() for truth in truths]).abs_()
    wanted = (sample > 0) & sample.isfinite()
    if sample.device.type == "cpu":  # torch's median would wake its threads, which takes longer
        sizes = sample.numpy()[wanted.numpy()]
        middle = (len(sizes) - 1) // 2
        return float(np.partition(sizes, middle)[middle]) if len(sizes) else 0.0
    sample = sample[wanted]
    return float(sample.median()) if sample.numel() else 0.0


def calibrate(
    pairs: list[Pair],
    ruleset: Ruleset,
    factors: ErrorFactors,
    own_error: float = 0.0,
    around_reference: bool = False,
) -> ErrorBound | None:
    """Return the error bound that follows from the reference's own errors.

    Args:
        pairs: The output, whole or in parts.
        ruleset: Ruleset, which gives the floor and the largest error of a believable twin.
        factors: Factors by which errors may exceed the reference's own.
        own_error: The reference's error in other calls, used for outputs of fewer than 16
            elements, which may be right by chance in this call.
        around_reference: Whether the bound is one on the distance from the reference, which has its
            own error, and not from the truth.

    Returns:
        None if the truths are so far from the reference's output that they are no twin of it.
    """
    like = pairs[0][0]
    device, typical = like.device, _typical([truth for _, truth in pairs])
    grain = torch.finfo(like.dtype).eps  # matters where the output is narrower than fp32
    # A model may compute in bf16 and return fp32: the lowest precision says what is believable.
    lowest = max(grain, _GRAINS.get(ruleset.precision, 0.0))
    distrust = max(ruleset.error_distrust, _HALF_DISTRUST * lowest)
    tables = _tables_at_once(pairs, typical, distrust) or _tables(pairs, typical, distrust)
    if tables is None:
        return None
    largest, counts, squares = tables
    up_to = largest.cummax(0).values
    fullest = int((counts.cumsum(0) < _POPULATION).sum())  # the bin that holds the 16th smallest
    lenders = torch.arange(_BINS, device=device).add_(_NEIGHBOURS)
    lent = up_to[lenders.clamp_(min(fullest, _BINS - 1), _BINS - 1)]
    if int(counts.sum()) < _POPULATION:
        lent.clamp_min_(own_error)
    floor = max(ruleset.floor, _GRAINS_AT_ONE * grain)
    slack = lent * (factors.element + around_reference) + (floor * typical + TINY)
    rms, elements = math.inf, int(counts.sum())
    if elements >= _LEAST_FOR_RMS and factors.rms < math.inf:
        own = math.sqrt(squares / elements)
        least = _FLOOR_SHARE * ruleset.floor * max(factors.rms, _LEAST_FACTOR)
        near_one = min(_GRAIN_AT_ONE / max(typical, _SMALLEST), _MOST_AT_ONE)
        least = max(least, _GRAIN_SHARE * grain, near_one)
        rms = math.hypot(factors.rms * own, least) + around_reference * own
        rms *= 1 + _CHANCE / math.sqrt(elements)
    return ErrorBound(slack, max(ruleset.floor, grain), typical, rms)


def _tables_at_once(
    pairs: list[Pair], typical: float, distrust: float
) -> tuple[torch.Tensor, torch.Tensor, float] | None:
    """Return what `_tables` returns, by fused kernels in one pass; None if they cannot decide."""
    fused = fused_for(*(tensor for pair in pairs for tensor in pair))
    if fused is None or not _SMALLEST < typical < _LARGEST:
        return None
    device = pairs[0][0].device
    errors = torch.zeros(_BINS, dtype=torch.int64, device=device)
    counts, squares = torch.zeros_like(errors), 0.0
    for pair in pairs:
        found = fused.own_errors(*pair, errors, counts, typical, distrust)
        if found is None:
            return None
        squares += found
    return errors.view(torch.float64), counts, squares


def _tables(
    pairs: list[Pair], typical: float, distrust: float
) -> tuple[torch.Tensor, torch.Tensor, float] | None:
    """Return the reference's largest own errors, and the numbers of elements, by exponent.

    The third value is the sum of the squares of all own errors, relative to the magnitude.

    None if the truths are no twin.
    """
    device = pairs[0][0].device
    lanes = _LANES.get(device.type, 1)
    own_errors = torch.zeros(lanes * _BINS, dtype=torch.float64, device=device)
    counts = torch.zeros(_BINS, dtype=torch.int64, device=device)
    squares = 0.0
    for ref, true in _chunks(pairs):
        own, size = (ref - true).abs_(), true.abs()
        bins = _bins_of(size)
        if not math.isfinite(float(own.max())):
            if bool((ref.isfinite() & ~true.isfinite()).any()):
                return None
            # What is left overflowed fp32 only, or is not finite on both sides: no own error.
            own.nan_to_num_(0.0, 0.0, 0.0)
            size.nan_to_num_(0.0, 0.0, 0.0)
        counts += torch.bincount(bins, minlength=_BINS)
        if lanes > 1:
            bins += torch.arange(bins.numel(), device=device).remainder_(lanes).mul_(_BINS)
        own_errors.scatter_reduce_(0, bins, own, "amax")
        own.div_(size.add_(max(typical, _SMALLEST)))
        if bool((own > distrust).any()):
            return None
        squares += float(own.square_().sum())
    return own_errors.view(lanes, _BINS).amax(0), counts, squares


def _chunks(pairs: list[Pair]) -> Iterable[Pair]:
    for reference, truth in pairs:
        step = _chunk_of(truth)
        for start in range(0, truth.numel(), step):
            part = slice(start, start + step)
            yield reference[part].double(), truth[part].double()


def outside_bound(
    output: torch.Tensor,
    reference: torch.Tensor,
    truth: torch.Tensor,
    bound: ErrorBound,
    parts: int = 1,
    places: MismatchPlaces | None = None,
    more: torch.Tensor | None = None,
) -> ErrorDifference:
    """Find where `output` is outside the bound around `truth`; see `is_read_once`.

    Args:
        output: Flat, like the other tensors.
        reference: The reference's output.
        truth: The right output.
        bound: The bound.
        parts: Numbers per element.
        places: Collects where wrong elements lie.
        more: Error that is allowed beside the bound, by element. The root mean square is allowed it
            only at elements that are far more sensitive than most: if all are, a lower precision
            errs as the reference does.
    """
    found = ErrorDifference(parts, places=places)
    if more is None and (fused := fused_for(output, truth)) is not None:
        table = torch.cat((bound.slack, bound.slack.new_tensor([bound.least])))
        sure = fused.within_bound(output, truth, table, bound.relative, bound.rms)
        if sure is not None:
            return _inside(found, sure)
    output = _still(output)
    squares, ordinary = 0.0, math.inf if more is None else _OUTLYING * float(more.median())
    for part in found.chunks(output):
        out, true = output[part].double(), truth[part].double()
        error, size = (out - true).abs_(), true.abs()
        slack = bound.slack.index_select(0, _bins_of(size)).add_(size, alpha=bound.relative)
        if more is not None:
            slack.add_(more[part])
        close = error <= slack
        largest = float(error.max())
        if not math.isfinite(largest) or not bool(close.all()):
            ref = reference[part].double()
            close &= size.isfinite()
            close |= (out == true) | (out == ref) | (out.isnan() & ref.isnan())
            largest = float(error.nan_to_num_(0.0, 0.0, 0.0).max())
            size.nan_to_num_(0.0, 0.0, 0.0)
            found.add(part.start, ~close, out, ref, error)
        found.worst_abs = max(found.worst_abs, largest)
        beyond = error
        if more is not None:
            beyond = torch.where(more[part] > ordinary, error - more[part], error).clamp_min_(0.0)
        squares += float((beyond / (size + bound.least)).square_().sum())
        relative = float(error.div_(size.clamp_min_(bound.least)).max())
        found.worst_rel = max(found.worst_rel, min(relative, sys.float_info.max))
    if not found.count and output.numel():
        found.rms = math.sqrt(squares / output.numel())
        found.is_coarse = found.rms > bound.rms
    return found


def is_read_once(output: torch.Tensor) -> bool:
    """Return True if a comparison reads an output once, or copies it.

    Such an output may lie in memory that a candidate can write: what the comparison finds right, it
    has read there. True for floating-point tensors on CUDA; other tensors are read several times.
    """
    return bool(output.is_cuda and output.is_floating_point())


def _still(output: torch.Tensor) -> torch.Tensor:
    """Return an output, copied if a candidate could change it between two reads."""
    return output.clone() if is_read_once(output) else output


def _inside(found: ErrorDifference, errors: tuple[float, ...]) -> ErrorDifference:
    found.worst_abs, found.worst_rel = (min(error, sys.float_info.max) for error in errors[:2])
    return found


def outside_fixed(
    output: torch.Tensor,
    reference: torch.Tensor,
    ruleset: Ruleset,
    parts: int = 1,
    places: MismatchPlaces | None = None,
) -> ErrorDifference:
    """Find where `output` is outside the fixed tolerances; see `is_read_once`.

    The absolute one is relative to the reference's typical magnitude, but for KernelBench's rule.
    """
    found = ErrorDifference(parts, places=places)
    atol, rtol = ruleset.tolerances
    if ruleset.tolerance == "fp64":
        atol *= _typical([reference]) or 1.0
    fused = fused_for(output, reference)
    if fused is not None and output.dtype == reference.dtype == torch.float32:
        if (sure := fused.within_fixed(output, reference, atol, rtol)) is not None:
            return _inside(found, sure)
    output = _still(output)
    same_nan = ruleset.tolerance == "fp64"  # KernelBench's own rule accepts no NaN
    for part in found.chunks(output):
        out, ref = output[part], reference[part]
        close = torch.isclose(ref, out, rtol=rtol, atol=atol, equal_nan=same_nan)
        error = (out.double() - ref.double()).abs_().nan_to_num_(0.0, 0.0, 0.0)
        found.add(part.start, ~close, out, ref, error)
        size = ref.double().abs_().nan_to_num_(0.0, 0.0, 0.0).clamp_min_(1e-12)
        found.worst_abs = max(found.worst_abs, float(error.max()))
        found.worst_rel = max(
            found.worst_rel, min(float(error.div_(size).max()), sys.float_info.max)
        )
    return found


def unequal(
    output: torch.Tensor,
    reference: torch.Tensor,
    parts: int = 1,
    places: MismatchPlaces | None = None,
) -> ErrorDifference:
    """Find where integers, or the bytes of booleans, differ."""
    found = ErrorDifference(parts, places=places)
    for part in found.chunks(output):
        out, ref = output[part], reference[part]
        found.add(part.start, out != ref, out, ref)
    return found
