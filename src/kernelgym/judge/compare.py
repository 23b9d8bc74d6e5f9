"""Compare what a kernel left in its output regions with what the reference gives.

Two rules, chosen by the ruleset:

- ``allclose``: KernelBench's ``|ref - out| <= atol + rtol * |out|``; NaN anywhere fails.
- ``fp64``: ``|out - ref64| <= factor * e + floor * (|ref64| + rms(ref64))``, where ``e`` is the
  largest error of the fp32 reference itself against its fp64 twin. NaN and infinities must stand
  where the reference has them. If the reference cannot run in fp64, ``allclose`` applies.

Tensors that are not floating-point must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernelgym.rulesets import Ruleset

__all__ = ["Comparison", "compare", "describe_shape_of"]

_CHUNK = 1 << 15  # stays in the processor's cache, and below torch's threshold for threads


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


def compare(
    claimed: Any, outputs: list[torch.Tensor], expected: Any, precise: Any, ruleset: Ruleset
) -> Comparison:
    """Judge one call.

    Args:
        claimed: The candidate's description of its output; must agree with the reference's.
        outputs: A private copy of what lies in the output regions, in order.
        expected: The reference's output.
        precise: Its fp64 twin's, or None.
        ruleset: The rules.
    """
    problem = _structure_problem(claimed, describe_shape_of(expected), ruleset)
    if problem:
        return Comparison(False, message=problem)
    expected_leaves = list(_leaves(expected))
    precise_leaves = [None] * len(expected_leaves) if precise is None else list(_leaves(precise))
    worst = Comparison(True)
    for index, (output, reference) in enumerate(zip(outputs, expected_leaves, strict=True)):
        found = _compare_tensor(output, reference, precise_leaves[index], ruleset)
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
    ((kind, body),) = wanted.items()
    if not isinstance(claimed, dict) or len(claimed) != 1:
        return f"{at} has no readable description"
    ((got_kind, got),) = claimed.items()
    if got_kind == "other":
        return f"{at} is {str(got)[:200]}"
    if got_kind != kind:
        return f"{at} is a {got_kind}, the reference gives a {kind}"
    try:
        if kind == "tensor":
            if list(got[1]) != body[1]:
                return f"{at} shape mismatch: expected {body[1]}, got {list(got[1])}"
            if got[0] != body[0]:
                return f"{at} dtype mismatch: expected {body[0]}, got {str(got[0])[:40]}"
        elif kind == "scalar":
            return _scalar_problem(got, body, ruleset, at)
        elif len(got) != len(body):
            return f"{at} has {len(got)} items, the reference's has {len(body)}"
        elif kind == "sequence":
            items = zip(got, body, strict=True)
            problems = (
                _structure_problem(a, b, ruleset, f"{at}[{i}]") for i, (a, b) in enumerate(items)
            )
            return next(filter(None, problems), "")
        else:
            for (got_key, a), (key, b) in zip(got, body, strict=True):
                if got_key != key:
                    return f"{at} has key {str(got_key)[:40]!r} where the reference has {key!r}"
                if problem := _structure_problem(a, b, ruleset, f"{at}[{key!r}]"):
                    return problem
    except (TypeError, ValueError, IndexError, KeyError):
        return f"{at} has no readable description"
    return ""


def _scalar_problem(got: Any, wanted: Any, ruleset: Ruleset, at: str) -> str:
    if isinstance(wanted, float) and isinstance(got, (int, float)):
        same = abs(got - wanted) <= ruleset.atol + ruleset.rtol * abs(wanted)
    else:
        same = type(got) is type(wanted) and got == wanted
    return "" if same else f"{at} is a number that differs from the reference's"


def _compare_tensor(
    output: torch.Tensor, reference: torch.Tensor, precise: torch.Tensor | None, ruleset: Ruleset
) -> Comparison:
    if torch.equal(output, reference):  # also keeps honest copies of large outputs cheap
        return Comparison(True)
    if not reference.is_floating_point():
        return _summary(output != reference, output, reference, 0.0, 0.0)
    use_fp64 = ruleset.tolerance == "fp64" and precise is not None
    truth = precise if use_fp64 and precise is not None else reference
    flat = [tensor.reshape(-1) for tensor in (output, reference, truth)]
    own_error, scale = _own_error(flat[1], flat[2]) if use_fp64 else (0.0, 0.0)
    slack = ruleset.error_factor * own_error + ruleset.error_floor * scale
    worst_abs, worst_rel = 0.0, 0.0
    differing = torch.zeros(output.numel(), dtype=torch.bool)
    for start in range(0, output.numel(), _CHUNK):
        out, ref, true = (tensor[start : start + _CHUNK] for tensor in flat)
        out64, true64 = out.double(), true.double()
        error = (out64 - true64).abs_()
        size = true64.abs()
        if use_fp64:
            close = (error <= slack + ruleset.error_floor * size) & size.isfinite()
            close |= (out64 == true64) | (out64.isnan() & ref.isnan()) | (out == ref)
        else:
            close = torch.isclose(ref, out, rtol=ruleset.rtol, atol=ruleset.atol)
        differing[start : start + _CHUNK] = ~close
        error = error.nan_to_num_(0.0, 0.0, 0.0)
        worst_abs = max(worst_abs, float(error.max()))
        worst_rel = max(worst_rel, float((error / size.clamp_min_(max(scale, 1e-12))).max()))
    return _summary(differing, output, reference, worst_abs, worst_rel)


def _own_error(reference: torch.Tensor, truth: torch.Tensor) -> tuple[float, float]:
    """The fp32 reference's largest error against fp64, and the root mean square of the truth."""
    largest, squares, count = 0.0, 0.0, 0
    for start in range(0, truth.numel(), _CHUNK):
        ref, true = reference[start : start + _CHUNK], truth[start : start + _CHUNK]
        error = (ref.double() - true).abs_().nan_to_num_(0.0, 0.0, 0.0)
        largest = max(largest, float(error.max()))
        finite = true.nan_to_num(0.0, 0.0, 0.0)
        squares += float(torch.dot(finite, finite))
        count += int(true.isfinite().sum())
    return largest, math.sqrt(squares / count) if count else 0.0


def _summary(
    differing: torch.Tensor,
    output: torch.Tensor,
    reference: torch.Tensor,
    worst_abs: float,
    worst_rel: float,
) -> Comparison:
    count = int(differing.sum())
    if count == 0:
        return Comparison(True, worst_abs, worst_rel)
    first = int(differing.reshape(-1).to(torch.uint8).argmax())
    place = [int(i) for i in np.unravel_index(first, tuple(reference.shape))]
    message = f"values differ at {count} of {output.numel()} elements, first at {place}"
    message += f"; largest absolute error {worst_abs:.3g}" if worst_abs else ""
    if output.is_floating_point():
        strange = int((~output.isfinite() & reference.isfinite()).sum())
        if strange:
            message += f"; {strange} elements are NaN or infinite where the reference is finite"
    return Comparison(False, worst_abs, worst_rel, message)
