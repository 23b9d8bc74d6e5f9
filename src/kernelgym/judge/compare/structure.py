"""Compare the structure of outputs: nesting, types, shapes, strides and plain numbers.

A candidate describes its output in JSON, and may claim anything.

Not covered: the values of tensors, which `compare` compares from their bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch

from kernelgym.rulesets import Ruleset


def describe_shape_of(output: Any) -> Any:
    """Return an output's structure, types, shapes and strides, as `candidate.py` does."""
    if isinstance(output, torch.Tensor):
        said = [str(output.dtype).removeprefix("torch."), list(output.shape)]
        return {"tensor": [*said, {"strides": list(output.stride())}]}
    if isinstance(output, (list, tuple)):
        return {"sequence": [describe_shape_of(item) for item in output]}
    if isinstance(output, dict):
        return {"mapping": [[str(key), describe_shape_of(v)] for key, v in output.items()]}
    return {"scalar": output}


def outline(value: Any) -> Any:
    """Return a nested value in which each tensor is replaced by an empty one of its shape."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, dict):
        return {key: outline(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(outline, value))
    return list(map(outline, value)) if isinstance(value, list) else value


def name_of(output: Any, index: int) -> str:
    """Return the name of an output's tensor in messages.

    By field, such as ``output['logits']``, where the output is a dict; else ``output 1``.

    Args:
        output: The reference's output.
        index: The tensor's place among all tensors of the output.
    """

    def names(value: Any, at: str) -> Iterator[str]:
        if isinstance(value, torch.Tensor):
            yield at
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from names(item, f"{at}[{str(key)!r}]")
        elif isinstance(value, (list, tuple)):
            for number, item in enumerate(value):
                yield from names(item, f"{at}[{number}]")

    if not isinstance(output, dict):
        return f"output {index}"
    return next(itertools.islice(names(output, "output"), index, None))


def structure_problem(claimed: Any, wanted: Any, ruleset: Ruleset, at: str = "output") -> str:
    """Return how the structure that a candidate claims differs from the expected one; '' if equal.

    Args:
        claimed: The candidate's description, which may be any JSON value.
        wanted: Structure that `describe_shape_of` returns for the reference's output.
        ruleset: The rules.
        at: The output's name in messages.
    """
    try:
        return _difference(claimed, wanted, ruleset, at)
    except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError):
        return f"{at} has no readable description"


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
        if ruleset.tolerance == "fp64" and len(got) > 2:
            return _stride_problem(got[2]["strides"], body[2]["strides"], body[1], at)
    elif kind == "scalar":
        if not _same_scalar(got, body, ruleset):
            return f"{at} is a number that differs from the reference's"
    elif len(got) != len(body):
        return f"{at} has {len(got)} items, the reference's has {len(body)}"
    elif kind == "sequence":
        for number, (item, wanted_item) in enumerate(zip(got, body, strict=True)):
            if problem := structure_problem(item, wanted_item, ruleset, f"{at}[{number}]"):
                return problem
    else:
        for (got_key, item), (key, wanted_item) in zip(got, body, strict=True):
            if got_key != key:
                return f"{at} has key {str(got_key)[:40]!r} where the reference has {key!r}"
            if problem := structure_problem(item, wanted_item, ruleset, f"{at}[{key!r}]"):
                return problem
    return ""


def _stride_problem(got: Any, wanted: list[int], shape: list[int], at: str) -> str:
    """Return how claimed strides differ from the allowed ones; '' if they are allowed.

    They must be the reference's. Where the reference's output is not contiguous, a contiguous one
    is right too: kernels seldom imitate such layouts, and the task does not ask them to.
    """
    steps = [int(step) for step in got]
    if 0 in shape or steps == wanted:
        return ""
    # No element's address depends on the stride of an axis of size 1.
    real = [axis for axis, size in enumerate(shape) if size > 1]
    if len(steps) == len(wanted):
        for right in (wanted, _contiguous(shape)):
            if all(steps[axis] == right[axis] for axis in real):
                return ""
    return f"{at} stride mismatch: expected {wanted}, got {str(steps)[:200]}"


def _contiguous(shape: list[int]) -> list[int]:
    """Return the strides of a contiguous tensor of a shape."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
    return strides


def _same_scalar(got: Any, wanted: Any, ruleset: Ruleset) -> bool:
    if not isinstance(wanted, float) or type(got) not in (int, float):
        return type(got) is type(wanted) and bool(got == wanted)
    number = float(got)  # an int beyond the largest double raises: no readable description
    if math.isnan(wanted):
        return ruleset.tolerance == "fp64" and math.isnan(number)
    atol, rtol = ruleset.tolerances
    within = abs(number - wanted) <= atol + rtol * abs(wanted)
    return number == wanted or (math.isfinite(wanted) and within)
