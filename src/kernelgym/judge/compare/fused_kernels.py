"""The Triton kernels behind `fused`: each compares tensors in one pass.

This module imports Triton, so `fused` imports it only for tensors on a CUDA device, and catches the
ImportError where Triton is not installed.
"""

from __future__ import annotations

import triton
import triton.language as tl

BINS = tl.constexpr(1 << 11)
"""Number of bins: one for each binary exponent of an fp64 number."""


@triton.jit  # type: ignore[untyped-decorator]
def within(  # type: ignore[no-untyped-def]
    out_ptr,
    true_ptr,
    slack_ptr,
    found_ptr,
    count,
    programs,
    relative,
    sure,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Find whether every element is inside its bound, the largest errors and their squares."""
    program = tl.program_id(0)
    least = tl.load(slack_ptr + BINS)
    wrong = tl.zeros((BLOCK,), tl.int32)
    worst = tl.zeros((BLOCK,), tl.float64)
    worst_relative = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        at = (program.to(tl.int64) * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        out = tl.load(out_ptr + at, mask=inside, other=0.0).to(tl.float64)
        true = tl.load(true_ptr + at, mask=inside, other=0.0).to(tl.float64)
        error = tl.abs(out - true)
        size = tl.abs(true)
        bin_ = (size.to(tl.int64, bitcast=True) >> 52) & (BINS - 1)
        allowed = tl.load(slack_ptr + bin_) * sure + size * relative
        # Written as a negation: a comparison with NaN is false, so a NaN counts as wrong.
        wrong = tl.where(inside & ~(error <= allowed), 1, wrong)
        worst = tl.maximum(worst, error)
        narrow = error.to(tl.float32)
        part = narrow / tl.maximum(size, least).to(tl.float32)
        worst_relative = tl.maximum(worst_relative, part)
        share = narrow / (size + least).to(tl.float32)
        squares += share * share
    tl.store(found_ptr + program, tl.max(wrong, axis=0).to(tl.float64))
    tl.store(found_ptr + programs + program, tl.max(worst, axis=0))
    largest = tl.max(worst_relative, axis=0).to(tl.float64)
    tl.store(found_ptr + 2 * programs + program, largest)
    tl.store(found_ptr + 3 * programs + program, tl.sum(squares.to(tl.float64), axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def close(  # type: ignore[no-untyped-def]
    out_ptr,
    ref_ptr,
    found_ptr,
    count,
    programs,
    atol,
    rtol,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Compare elements with fixed tolerances, and find the largest errors."""
    program = tl.program_id(0)
    wrong = tl.zeros((BLOCK,), tl.int32)
    worst = tl.zeros((BLOCK,), tl.float32)
    worst_relative = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        at = (program.to(tl.int64) * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        out = tl.load(out_ptr + at, mask=inside, other=0.0).to(tl.float32)
        ref = tl.load(ref_ptr + at, mask=inside, other=0.0).to(tl.float32)
        error = tl.abs(ref - out)
        finite = error < float("inf")
        right = finite & (error <= atol + rtol * tl.abs(out))
        wrong = tl.where(inside & ~right, 1, wrong)
        worst = tl.maximum(worst, error)
        worst_relative = tl.maximum(worst_relative, error / tl.maximum(tl.abs(ref), 1e-12))
    tl.store(found_ptr + program, tl.max(wrong, axis=0).to(tl.float64))
    tl.store(found_ptr + programs + program, tl.max(worst, axis=0).to(tl.float64))
    largest = tl.max(worst_relative, axis=0).to(tl.float64)
    tl.store(found_ptr + 2 * programs + program, largest)


@triton.jit  # type: ignore[untyped-decorator]
def errors(  # type: ignore[no-untyped-def]
    ref_ptr,
    true_ptr,
    errors_ptr,
    counts_ptr,
    totals_ptr,
    count,
    typical,
    distrust,
    BLOCK: tl.constexpr,
    TOTALS: tl.constexpr,
):
    """Add a reference's errors to tables by exponent of the truth, and their squares to totals.

    A total becomes infinite if the twin is not believable.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    ref = tl.load(ref_ptr + at, mask=inside, other=0.0).to(tl.float64)
    true = tl.load(true_ptr + at, mask=inside, other=0.0).to(tl.float64)
    own = tl.abs(ref - true)
    size = tl.abs(true)
    doubted = inside & ~(own <= (size + typical) * distrust)
    total_ptr = totals_ptr + tl.program_id(0) % TOTALS
    if tl.max(doubted.to(tl.int32), axis=0) > 0:
        tl.atomic_add(total_ptr, float("inf"))
    else:
        share = own / (size + typical)
        tl.atomic_add(total_ptr, tl.sum(share * share, axis=0))
        bin_ = ((size.to(tl.int64, bitcast=True) >> 52) & (BINS - 1)).to(tl.int32)
        left = tl.where(inside, bin_, -1)
        top = tl.max(left, axis=0)
        # A block holds about a dozen exponents. Each is reduced here and added once: one atomic
        # operation per element would queue for the same few addresses.
        while top >= 0:
            here = left == top
            largest = tl.max(tl.where(here, own, 0.0), axis=0)
            tl.atomic_max(errors_ptr + top, largest.to(tl.int64, bitcast=True))
            tl.atomic_add(counts_ptr + top, tl.sum(here.to(tl.int64), axis=0))
            left = tl.where(here, -1, left)
            top = tl.max(left, axis=0)
