"""Compare what a kernel left in its output regions with what the reference gives.

Two rules, chosen by the ruleset:

- ``allclose``: KernelBench's ``|ref - out| <= atol + rtol * |out|``; NaN anywhere fails.
- ``fp64``: ``|out - ref64| <= factor * e + floor * (|ref64| + typical)`` at every element.
  ``ref64`` is the reference's fp64 twin and ``typical`` the median of its non-zero magnitudes.
  ``e`` is the fp32 reference's own error: the largest one against ``ref64`` among the elements of
  about this element's magnitude or smaller, so that large elements lend no slack to small ones.
  NaN and infinities must stand where the reference has them.

A twin that is missing, or so far from the reference that it computes something else (noise drawn
anew, values rounded the other way), is not used: the fixed ``atol`` and ``rtol`` apply then, with
NaN allowed where the reference has it.

Complex tensors are compared by their parts, booleans by their bytes (a poisoned byte is neither
true nor false), all other tensors must be equal. Nothing here measures how often a kernel is off:
one element outside the bound fails the call.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernelgym.rulesets import Ruleset

__all__ = ["Comparison", "byte_copy", "compare", "describe_shape_of"]

_CHUNK = 1 << 15  # stays in the processor's cache, and below torch's threshold for threads
_BINS = 1 << 11  # one per binary exponent of an fp64 number; bin 0 holds zeros
_NEIGHBOURS = 2  # octaves above its own from which an element borrows own errors
_POPULATION = 16  # elements, the smallest ones, that always share their own errors
_SAMPLE = 1 << 20
_TINY = 2.0**-126  # the smallest normal fp32 number: kernels may flush what is below to zero


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of one call."""

    passed: bool
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    message: str = ""
    """Why it failed; never a reference value."""


def describe_shape_of(output: Any) -> Any:
    """Describe an output as `candidate.py` does: structure, types and shapes, no values."""
    if isinstance(output, torch.Tensor):
        return {"tensor": [str(output.dtype).removeprefix("torch."), list(output.shape)]}
    if isinstance(output, (list, tuple)):
        return {"sequence": [describe_shape_of(item) for item in output]}
    if isinstance(output, dict):
        return {"mapping": [[str(key), describe_shape_of(v)] for key, v in output.items()]}
    return {"scalar": output}


def byte_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a region's bytes; `clone` would turn any booleans but zero into proper ones."""
    if tensor.dtype == torch.bool:
        return tensor.view(torch.uint8).clone().view(torch.bool)
    return tensor.clone()


def compare(
    claimed: Any, outputs: list[torch.Tensor], expected: Any, precise: Any, ruleset: Ruleset
) -> Comparison:
    """Judge one call.

    Args:
        claimed: The candidate's description of its output; must agree with the reference's.
        outputs: Private copies (`byte_copy`) of what lies in the output regions, in order.
        expected: The reference's output.
        precise: Its fp64 twin's, or None.
        ruleset: The rules.
    """
    problem = _structure_problem(claimed, describe_shape_of(expected), ruleset)
    if problem:
        return Comparison(False, message=problem)
    expected_leaves = list(_leaves(expected))
    twins: list[torch.Tensor | None] = list(_leaves(precise))
    if len(twins) != len(expected_leaves):
        twins = [None] * len(expected_leaves)
    worst = Comparison(True)
    for index, (output, reference) in enumerate(zip(outputs, expected_leaves, strict=True)):
        found = _compare_tensor(output, reference, twins[index], ruleset)
        label = f"output {index}: " if len(outputs) > 1 else ""
        worst = Comparison(
            worst.passed and found.passed,
            max(worst.max_abs_error, found.max_abs_error),
            max(worst.max_rel_error, found.max_rel_error),
            worst.message or (label + found.message if found.message else ""),
        )
    return worst


def _leaves(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, (list, tuple)):
        for item in output:
            yield from _leaves(item)
    elif isinstance(output, dict):
        for item in output.values():
            yield from _leaves(item)


def _structure_problem(claimed: Any, wanted: Any, ruleset: Ruleset, at: str = "output") -> str:
    try:
        return _difference(claimed, wanted, ruleset, at)
    except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError):
        return f"{at} has no readable description"  # a claim may be any JSON value whatever


def _difference(claimed: Any, wanted: Any, ruleset: Ruleset, at: str) -> str:
    ((kind, body),) = wanted.items()
    if not isinstance(claimed, dict) or len(claimed) != 1:
        return f"{at} has no readable description"
    ((got_kind, got),) = claimed.items()
    if got_kind == "other":
        return f"{at} is {str(got)[:200]}"
    if got_kind != kind:
        return f"{at} is a {str(got_kind)[:40]}, the reference gives a {kind}"
    if kind == "tensor":
        if list(got[1]) != body[1]:
            return f"{at} shape mismatch: expected {body[1]}, got {str(list(got[1]))[:200]}"
        if got[0] != body[0]:
            return f"{at} dtype mismatch: expected {body[0]}, got {str(got[0])[:40]}"
    elif kind == "scalar":
        if not _same_scalar(got, body, ruleset):
            return f"{at} is a number that differs from the reference's"
    elif len(got) != len(body):
        return f"{at} has {len(got)} items, the reference's has {len(body)}"
    elif kind == "sequence":
        for number, (item, wanted_item) in enumerate(zip(got, body, strict=True)):
            if problem := _structure_problem(item, wanted_item, ruleset, f"{at}[{number}]"):
                return problem
    else:
        for (got_key, item), (key, wanted_item) in zip(got, body, strict=True):
            if got_key != key:
                return f"{at} has key {str(got_key)[:40]!r} where the reference has {key!r}"
            if problem := _structure_problem(item, wanted_item, ruleset, f"{at}[{key!r}]"):
                return problem
    return ""


def _same_scalar(got: Any, wanted: Any, ruleset: Ruleset) -> bool:
    if not isinstance(wanted, float) or type(got) not in (int, float):
        return type(got) is type(wanted) and bool(got == wanted)
    number = float(got)  # an int beyond the largest double raises: it is no such claim
    if math.isnan(wanted):
        return ruleset.tolerance == "fp64" and math.isnan(number)
    within = abs(number - wanted) <= ruleset.atol + ruleset.rtol * abs(wanted)
    return number == wanted or (math.isfinite(wanted) and within)


def _compare_tensor(
    output: torch.Tensor, reference: torch.Tensor, precise: torch.Tensor | None, ruleset: Ruleset
) -> Comparison:
    out, ref = _comparable(output), _comparable(reference)
    if torch.equal(out, ref):  # also keeps honest copies of large outputs cheap
        return Comparison(True)
    if not ref.is_floating_point():
        return _summary(out != ref, output, reference, 0.0, 0.0)
    flat, bound = [out.reshape(-1), ref.reshape(-1)], None
    if ruleset.tolerance == "fp64" and precise is not None:
        true = _comparable(precise)
        if true.shape == ref.shape and true.is_floating_point():
            flat.append(true.reshape(-1))
            bound = _calibrate(flat[1], flat[2], ruleset)
    if bound is None:
        found = _outside_fixed(flat[0], flat[1], ruleset)
    else:
        found = _outside_bound(flat[0], flat[1], flat[2], bound)
    return _summary(found[0], output, reference, found[1], found[2])


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


@dataclass(frozen=True, slots=True)
class _Bound:
    """How far an output may be off: ``slack[bin of ref64] + relative * |ref64|``."""

    slack: torch.Tensor
    relative: float
    typical: float


def _bins_of(size: torch.Tensor) -> torch.Tensor:
    """The exponent bits of non-negative fp64 numbers."""
    return (size.view(torch.int64) >> 52).bitwise_and_(_BINS - 1)


def _calibrate(reference: torch.Tensor, truth: torch.Tensor, ruleset: Ruleset) -> _Bound | None:
    """Take the bound from the fp32 reference's own errors; None if `truth` is no twin of it."""
    step = max(1, -(-truth.numel() // _SAMPLE)) | 1  # odd, so as not to walk along columns
    sample = truth[::step].double().abs()
    sample = sample[(sample > 0) & sample.isfinite()]
    typical = float(sample.median()) if sample.numel() else 0.0
    grain = torch.finfo(reference.dtype).eps  # matters where the output is narrower than fp32
    distrust = max(ruleset.error_distrust, 4 * grain)
    own_errors = torch.zeros(_BINS, dtype=torch.float64)
    counts = torch.zeros(_BINS, dtype=torch.int64)
    for start in range(0, truth.numel(), _CHUNK):
        ref = reference[start : start + _CHUNK].double()
        true = truth[start : start + _CHUNK].double()
        own, size = (ref - true).abs_(), true.abs()
        bins = _bins_of(size)
        if not math.isfinite(float(own.max())):
            if bool((ref.isfinite() & ~true.isfinite()).any()):
                return None
            own.nan_to_num_(0.0, 0.0, 0.0)  # overflow of fp32, or the same on both sides
        own_errors.scatter_reduce_(0, bins, own, "amax")
        counts += torch.bincount(bins, minlength=_BINS)
        if bool((own > size.add_(typical).mul_(distrust).add_(_TINY)).any()):
            return None
    up_to = own_errors.cummax(0).values
    fullest = int((counts.cumsum(0) < _POPULATION).sum())  # the bin that holds the 16th smallest
    lenders = (torch.arange(_BINS) + _NEIGHBOURS).clamp_(fullest, _BINS - 1)
    slack = up_to[lenders] * ruleset.error_factor + (ruleset.error_floor * typical + _TINY)
    return _Bound(slack, max(ruleset.error_floor, grain), typical)


def _outside_bound(
    output: torch.Tensor, reference: torch.Tensor, truth: torch.Tensor, bound: _Bound
) -> tuple[torch.Tensor, float, float]:
    """Where `output` is outside the bound, and its largest absolute and relative error."""
    differing = torch.zeros(output.numel(), dtype=torch.bool)
    worst_abs, worst_rel = 0.0, 0.0
    for start in range(0, output.numel(), _CHUNK):
        out = output[start : start + _CHUNK].double()
        true = truth[start : start + _CHUNK].double()
        error, size = (out - true).abs_(), true.abs()
        slack = bound.slack.index_select(0, _bins_of(size)).add_(size, alpha=bound.relative)
        close = error <= slack
        largest = float(error.max())
        if not math.isfinite(largest) or not bool(close.all()):
            ref = reference[start : start + _CHUNK].double()
            close &= size.isfinite()
            close |= (out == true) | (out == ref) | (out.isnan() & ref.isnan())
            largest = float(error.nan_to_num_(0.0, 0.0, 0.0).max())
            size.nan_to_num_(0.0, 0.0, 0.0)
            differing[start : start + _CHUNK] = ~close
        worst_abs = max(worst_abs, largest)
        relative = float(error.div_(size.clamp_min_(max(bound.typical, _TINY))).max())
        worst_rel = max(worst_rel, min(relative, sys.float_info.max))
    return differing, worst_abs, worst_rel


def _outside_fixed(
    output: torch.Tensor, reference: torch.Tensor, ruleset: Ruleset
) -> tuple[torch.Tensor, float, float]:
    """Where `output` is outside the fixed tolerances, and its largest errors."""
    differing = torch.zeros(output.numel(), dtype=torch.bool)
    worst_abs, worst_rel = 0.0, 0.0
    same_nan = ruleset.tolerance == "fp64"  # KernelBench's own rule knows no NaN that is right
    for start in range(0, output.numel(), _CHUNK):
        out, ref = output[start : start + _CHUNK], reference[start : start + _CHUNK]
        close = torch.isclose(ref, out, rtol=ruleset.rtol, atol=ruleset.atol, equal_nan=same_nan)
        differing[start : start + _CHUNK] = ~close
        error = (out.double() - ref.double()).abs_().nan_to_num_(0.0, 0.0, 0.0)
        size = ref.double().abs_().nan_to_num_(0.0, 0.0, 0.0).clamp_min_(1e-12)
        worst_abs = max(worst_abs, float(error.max()))
        worst_rel = max(worst_rel, min(float((error / size).max()), sys.float_info.max))
    return differing, worst_abs, worst_rel


def _summary(
    differing: torch.Tensor,
    output: torch.Tensor,
    reference: torch.Tensor,
    worst_abs: float,
    worst_rel: float,
) -> Comparison:
    if not bool(differing.any()):
        return Comparison(True, worst_abs, worst_rel)
    differing = differing.reshape(output.numel(), -1).any(1)  # joins the parts of complex numbers
    count = int(differing.sum())
    first = int(differing.to(torch.uint8).argmax())
    place = [int(i) for i in np.unravel_index(first, tuple(reference.shape))]
    message = f"values differ at {count} of {output.numel()} elements, first at {place}"
    message += f"; largest absolute error {worst_abs:.3g}" if worst_abs else ""
    if output.is_floating_point() or output.is_complex():
        strange = int((~output.isfinite() & reference.isfinite()).sum())
        if strange:
            message += f"; {strange} elements are NaN or infinite where the reference is finite"
    return Comparison(False, worst_abs, worst_rel, message)
