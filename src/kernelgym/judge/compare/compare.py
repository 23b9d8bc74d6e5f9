"""Compares a kernel's outputs, as they lie in its output regions, with the reference's output.

Two rules, chosen by the ruleset:

- ``allclose``: KernelBench's ``|ref - out| <= atol + rtol * |out|``; NaN anywhere fails.
- ``fp64``: ``|out - ref64| <= factor * e + floor * (|ref64| + typical)`` at every element, and a
  bound on the root mean square of all errors (see `error_bound`).
  ``ref64`` is the reference's fp64 twin and ``typical`` the median of its non-zero magnitudes.
  ``e`` is the fp32 reference's own error: the largest one against ``ref64`` among the elements of
  about this element's magnitude or smaller, so that large elements lend no slack to small ones.
  Where few elements exceed this bound, or all together the one on the root mean square, ``factor``
  times the `Sensitivity` is allowed beside it: a sum of large terms that cancel is ill conditioned,
  and so are two nearly equal largest scores of an attention, whatever the reference's error is by
  chance.
  NaN and infinities must stand where the reference has them.

The fixed ``atol`` and ``rtol`` apply, with NaN allowed where the reference has it, if there is no
twin, or if the twin is so far from the reference that it computes something else (noise drawn
anew, values rounded the other way).

Complex tensors are compared by their parts, booleans by their bytes (a poisoned byte is neither
true nor false), and all other tensors must be equal. One element outside the bound fails the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from kernelgym.judge.compare import error_bound
from kernelgym.judge.compare.mismatch import MismatchPlaces
from kernelgym.judge.compare.structure import describe_shape_of, name_of, outline, structure_problem
from kernelgym.judge.tensors import tensors_of
from kernelgym.rulesets import ErrorFactors, Ruleset
from kernelgym.verdict import Mismatch

_HALVES = (torch.float16, torch.bfloat16)

_FEW = 32  # elements among which one may be looked at again

Sensitivity: TypeAlias = Callable[[], list[torch.Tensor] | None]
"""Function that returns how much each element of the outputs (flat, in fp64) changes if the inputs
change in their last places; None if that is unknown."""
Truth: TypeAlias = torch.Tensor | list[tuple[slice, torch.Tensor]] | None
"""Right values of one output: a tensor in fp64, some of its rows in fp64, or None if unknown."""


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """Outcome of comparing one call's outputs with the reference's."""

    passed: bool
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    message: str = ""
    """Reason why the call failed; never contains a value of the reference."""
    mismatch: Mismatch | None = None
    """Location of the differences in the first wrong output, if the caller asked for it."""
    is_nearly_right: bool = False
    """Whether the output fails by little: only few elements exceed a bound made from the
    reference's own error, or none does and only the root mean square of the errors is too large."""
    wrong_share: float = 1.0
    """Share of wrong elements, estimated from a sample of those that are not trivial to compute, in
    a call whose failure was not explained; 1 if unknown."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Error bound of a problem, learned from earlier runs of its reference."""

    factors: ErrorFactors
    """Largest allowed errors of an output, as multiples of the reference's own errors."""
    own_errors: tuple[float, ...] = ()
    """The reference's error on each output in earlier calls. Used for outputs of few elements,
    on which the reference's error in one call may be small by chance."""


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """The fp64 outputs of some rows.

    Used where the whole outputs would take too much memory.
    """

    rows: tuple[slice, ...]
    """Slices along the first axis of every output."""
    outputs: tuple[Any, ...]
    """One output per slice."""


def byte_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a region's bytes, even of invalid booleans.

    `clone` would turn such a boolean, which a poisoned byte is, into a true one.
    """
    if tensor.dtype == torch.bool:
        return tensor.view(torch.uint8).clone().view(torch.bool)
    return tensor.clone()


def unchanging(region: torch.Tensor) -> torch.Tensor:
    """Return an output region, copied if a candidate could change it during a comparison."""
    return region if error_bound.is_read_once(region) else byte_copy(region)


def compare(
    claimed: Any,
    outputs: list[torch.Tensor],
    expected: Any,
    precise: Any,
    ruleset: Ruleset,
    calibration: Calibration | None = None,
    locate: bool = False,
    sensitivity: Sensitivity | None = None,
) -> OutputComparison:
    """Return whether a call's outputs are right, and their errors.

    Args:
        claimed: The candidate's description of its output; must agree with the reference's.
        outputs: The output regions, in order, as `unchanging` returns them.
        expected: The reference's output.
        precise: The fp64 twin's output, whole or as `RowBlocks`, or None.
        ruleset: The rules.
        calibration: The problem's calibration; None for that of an unknown operation.
        locate: Whether to explain a failure, which looks at every wrong element once more. If
            False, the comparison stops soon after the first wrong element.
        sensitivity: Function that is called if few elements exceed their bound, or their root mean
            square does.
    """
    problem = structure_problem(claimed, describe_shape_of(expected), ruleset)
    if problem:
        return OutputComparison(False, message=problem)
    expected_leaves = tensors_of(expected)
    twins = _twins(precise, len(expected_leaves))
    known = calibration or Calibration(ruleset.factors_for(""))
    earlier: Sequence[float] = known.own_errors
    if len(earlier) != len(expected_leaves):
        earlier = [0.0] * len(expected_leaves)
    worst = OutputComparison(True)
    for index, (output, reference) in enumerate(zip(outputs, expected_leaves, strict=True)):
        places = MismatchPlaces(tuple(reference.shape)) if locate and worst.passed else None
        factors = known.factors
        judged = partial(
            _compare_tensor, output, reference, twins[index], ruleset, factors, earlier[index]
        )
        found = judged(places)
        changes = sensitivity() if found.is_nearly_right and sensitivity is not None else None
        if changes is not None:
            places = MismatchPlaces(tuple(reference.shape)) if places is not None else None
            found = judged(places, changes[index] * factors.element)
        where = worst.mismatch
        if found.mismatch is not None:
            where = replace(found.mismatch, output=index, outputs=len(outputs))
        label = f"{name_of(expected, index)}: " if len(outputs) > 1 else ""
        worst = OutputComparison(
            worst.passed and found.passed,
            max(worst.max_abs_error, found.max_abs_error),
            max(worst.max_rel_error, found.max_rel_error),
            worst.message or (label + found.message if found.message else ""),
            where,
        )
    return worst


@dataclass(frozen=True, slots=True)
class OutputBounds:
    """Bounds on the distance between another call's outputs and the reference's output."""

    shape: Any
    """Structure of the reference's output, without values."""
    bounds: tuple[error_bound.ErrorBound, ...] = ()
    """Bounds for each tensor of the output; empty for fixed tolerances."""


def surroundings(
    expected: Any, precise: Any, ruleset: Ruleset, calibration: Calibration | None
) -> OutputBounds | None:
    """Return bounds around the reference's output, within which another call's outputs are right.

    None if that cannot show that an output is right: for integers, or without a twin. The reference
    itself may be off the truth by its own error, so the bound allows one more such error.
    """
    leaves, known = tensors_of(expected), calibration or Calibration(ruleset.factors_for(""))
    if not leaves or any(leaf.is_complex() or not leaf.is_floating_point() for leaf in leaves):
        return None
    if ruleset.tolerance != "fp64":
        return OutputBounds(outline(expected))
    found = []
    for reference, truth in zip(leaves, _twins(precise, len(leaves)), strict=True):
        bound = _bound(reference, truth, ruleset, known.factors, 0.0, around_reference=True)
        if bound is None:
            return None
        found.append(bound)
    return OutputBounds(outline(expected), tuple(found))


def near(
    claimed: Any,
    outputs: list[torch.Tensor],
    references: list[torch.Tensor],
    around: OutputBounds,
    ruleset: Ruleset,
) -> bool:
    """Return True if an output is right, since it lies within the bounds around a reference's.

    Args:
        claimed: The candidate's description of its output.
        outputs: Private copies of the candidate's tensors.
        references: Outputs of a process that runs the reference on the same inputs.
        around: Bounds on the distance between the two.
        ruleset: The rules.
    """
    if structure_problem(claimed, describe_shape_of(around.shape), ruleset):
        return False
    if not len(outputs) == len(references) == len(tensors_of(around.shape)):
        return False
    for index, (output, reference) in enumerate(zip(outputs, references, strict=True)):
        if output.shape != reference.shape or output.dtype != reference.dtype:
            return False
        out, ref = output.reshape(-1), reference.reshape(-1)
        if around.bounds:
            found = error_bound.outside_bound(out, ref, ref, around.bounds[index])
        else:
            found = error_bound.outside_fixed(out, ref, ruleset)
        if found.count or found.is_coarse:
            return False
    return True


def _twins(precise: Any, count: int) -> list[Truth]:
    twins: list[Truth]
    if isinstance(precise, RowBlocks):
        outputs = [tensors_of(output) for output in precise.outputs]
        if any(len(leaves) != count for leaves in outputs):
            return [None] * count
        return [
            [(rows, leaves[index]) for rows, leaves in zip(precise.rows, outputs, strict=True)]
            for index in range(count)
        ]
    twins = [*tensors_of(precise)]
    return twins if len(twins) == count else [None] * count


def _compare_tensor(
    output: torch.Tensor,
    reference: torch.Tensor,
    truth: Truth,
    ruleset: Ruleset,
    factors: ErrorFactors,
    own_error: float,
    places: MismatchPlaces | None = None,
    more: torch.Tensor | None = None,
) -> OutputComparison:
    out, ref = _comparable(output), _comparable(reference)
    # On CUDA this pass over floating-point outputs takes longer than it saves.
    exact = not (out.is_cuda and out.is_floating_point())
    if exact and torch.equal(out, ref):
        return OutputComparison(True)
    parts = 2 if reference.is_complex() else 1
    flat_out, flat_ref = out.reshape(-1), ref.reshape(-1)
    if not ref.is_floating_point():
        return _summary(error_bound.unequal(flat_out, flat_ref, parts, places), output, reference)
    bound = _bound(reference, truth, ruleset, factors, own_error)
    if bound is None:
        found = error_bound.outside_fixed(flat_out, flat_ref, ruleset, parts, places)
    elif isinstance(truth, torch.Tensor):
        true = _comparable(truth).reshape(-1)
        found = error_bound.outside_bound(flat_out, flat_ref, true, bound, parts, places, more)
    else:
        found = error_bound.outside_bound(flat_out, flat_ref, flat_ref, bound, parts, places)
    # A second look is for whole outputs: of some rows alone, the truth of the others is not known.
    is_bound = bound is not None and isinstance(truth, torch.Tensor)
    return _summary(found, output, reference, is_bound)


def _bound(
    reference: torch.Tensor,
    truth: Truth,
    ruleset: Ruleset,
    factors: ErrorFactors,
    own_error: float,
    around_reference: bool = False,
) -> error_bound.ErrorBound | None:
    if ruleset.tolerance != "fp64" or truth is None or not _comparable(reference).numel():
        return None
    blocks = truth if isinstance(truth, list) else [(slice(None), truth)]
    pairs = []
    for rows, block in blocks:
        ref = reference[rows] if isinstance(truth, list) else reference
        if block.shape != ref.shape or block.is_complex() != ref.is_complex():
            return None
        given, true = _comparable(ref).reshape(-1), _comparable(block).reshape(-1)
        if not true.is_floating_point() or not given.is_floating_point():
            return None
        pairs.append((given, true))
    if reference.dtype in _HALVES:
        factors = factors.of_half(ruleset.half_factor)
    around_reference |= isinstance(truth, list)  # which then stands for the truth
    return error_bound.calibrate(pairs, ruleset, factors, own_error, around_reference)


def own_errors(output: Any, precise: Any, ruleset: Ruleset) -> list[float] | None:
    """Return the reference's largest error on each floating-point output.

    None if `precise` is missing, or so far from `output` that it computes something else.
    """
    leaves, twins = tensors_of(output), _twins(precise, len(tensors_of(output)))
    found = []
    for reference, truth in zip(leaves, twins, strict=True):
        if not _comparable(reference).is_floating_point() or not reference.numel():
            found.append(0.0)
            continue
        bound = _bound(reference, truth, ruleset, ErrorFactors(1.0, 1.0), 0.0)
        if bound is None:
            return None
        floor = ruleset.floor * bound.typical + error_bound.TINY
        found.append(max(0.0, float(bound.slack.max()) - floor))
    return found


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def _summary(
    found: error_bound.ErrorDifference,
    output: torch.Tensor,
    reference: torch.Tensor,
    is_bound: bool = False,
) -> OutputComparison:
    if found.is_coarse:
        message = (
            f"the {output.numel()} values are too coarse: the root mean square of their relative "
            f"errors is about {found.rms:.1g}, as where numbers are rounded to fewer bits than the "
            "problem's; no single value is far off"
        )
        return OutputComparison(
            False, found.worst_abs, found.worst_rel, message, is_nearly_right=is_bound
        )
    if not found.count:
        return OutputComparison(True, found.worst_abs, found.worst_rel)
    place = [int(i) for i in np.unravel_index(found.first, tuple(reference.shape))]
    many = f"{found.count} or more" if found.is_partial else str(found.count)
    message = f"values differ at {many} of {output.numel()} elements, first at {place}"
    # One digit: of an output that is zero, the error is the reference's value.
    message += f"; largest absolute error about {found.worst_abs:.1g}" if found.worst_abs else ""
    if found.strange:
        message += f"; {found.strange} elements are NaN or infinite where the reference is finite"
    where = None
    if found.places is not None:
        where = found.places.mismatch(found.count, found.strange)
    few = is_bound and not found.strange and found.count * _FEW <= output.numel() + _FEW
    return OutputComparison(False, found.worst_abs, found.worst_rel, message, where, few)
