"""Which operators give the same bits on every device, and which can run on the CPU instead.

Exact are operators that only move elements, and arithmetic with one rounding, in types for which
IEEE 754 defines that rounding. Not exact are sums, exponentials and the like, conversions of values
that the target type cannot hold, and divisions by a number, which CUDA turns into products with its
reciprocal.

An operator that is not exact gives the CPU's bits if it runs on the CPU, provided that torch would
have chosen the same operator there. For some functions (dropout, attention, normalisations) torch
chooses operators by the device, so this module also lists the operators that can be sent back to
the CPU.

Not here: running operators (`draw`).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from kernelgym.judge.tensors import tensors_of

__all__ = ["can_be_sent_back", "is_exact", "is_view", "written_to"]

_ATEN = torch.ops.aten
_MOVING = (
    *("cat", "clone", "copy_", "fill_", "flip", "masked_fill", "masked_fill_", "repeat", "roll"),
    *("stack", "tril", "triu", "where", "zero_", "_unsafe_view"),
    *("fill_diagonal_", "full_like", "ones_like", "zeros_like"),
)
_COMPARING = (
    *("eq", "ge", "gt", "le", "lt", "ne", "logical_and", "logical_not", "logical_or"),
    *("bitwise_and", "bitwise_not", "bitwise_or"),
)
_COMPUTING = (
    *("abs", "add", "add_", "ceil", "clamp", "clamp_min", "clamp_max", "floor", "maximum"),
    *("minimum", "mul", "mul_", "neg", "relu", "sign", "sub", "sub_", "rsub"),
)
_COMPUTED = frozenset({torch.float32, torch.float64, torch.int32, torch.int64, torch.bool})
_SENT_BACK = (
    *("_local_scalar_dense", "_log_softmax", "_softmax", "_to_copy", "add_", "amax", "amin"),
    *("argmax", "argsort", "copy_", "cos", "cumprod", "cumsum", "div", "div_", "empty_like", "exp"),
    *("gather", "index", "linalg_vector_norm", "log", "log1p", "max", "mean", "min", "mul_"),
    *("new_empty", "new_full", "new_ones", "new_zeros", "pow", "prod", "round", "rsqrt", "sigmoid"),
    *(
        "rand_like",
        "randint_like",
        "randn_like",
        "sin",
        "sort",
        "sqrt",
        "std",
        "sub_",
        "sum",
        "tanh",
        "topk",
        "var",
    ),
)
_PLAIN = frozenset(getattr(_ATEN, name) for name in (*_MOVING, *_COMPARING))
_ROUNDED = frozenset(getattr(_ATEN, name) for name in _COMPUTING)
_SENDABLE = _PLAIN | _ROUNDED | {getattr(_ATEN, name) for name in _SENT_BACK}


def is_exact(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if this call gives the same bits on every device."""
    if func._overloadname.endswith("out") or kwargs.get("device") is not None:
        return False
    packet = func.overloadpacket
    if packet is _ATEN._to_copy:
        return _converts_exactly(args[0].dtype, kwargs.get("dtype"))
    if packet in _PLAIN:
        return True
    if packet is _ATEN.div:
        return len(args) == 2 and not kwargs and _is_power_of_two(args[1]) and _computes(args)
    if packet not in _ROUNDED or kwargs.get("alpha", 1) != 1:
        return False
    # `rsub` and the scalar overloads of `add` and `sub` take the factor by position.
    if packet in (_ATEN.add, _ATEN.add_, _ATEN.sub, _ATEN.sub_, _ATEN.rsub) and args[2:] not in (
        (),
        (1,),
    ):
        return False
    return _computes(args)


def can_be_sent_back(func: Any) -> bool:
    """Return True if torch would choose this operator for CPU tensors, too."""
    return func.overloadpacket in _SENDABLE


def is_view(func: Any) -> bool:
    """Return True if an operator returns a view of an argument."""
    aliases = [argument.alias_info for argument in func._schema.arguments]
    return any(alias is not None and not alias.is_write for alias in aliases)


def written_to(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that a call changes."""
    found: list[torch.Tensor] = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[index] if index < len(args) else kwargs.get(argument.name)
            found += tensors_of(given)
    return found


def _computes(args: tuple[Any, ...]) -> bool:
    return all(tensor.dtype in _COMPUTED for tensor in tensors_of(args))


def _converts_exactly(source: torch.dtype, target: torch.dtype | None) -> bool:
    if target is None or target == source or not source.is_floating_point:
        return True
    return target.is_floating_point or target in (torch.bool, torch.int64)


def _is_power_of_two(value: Any) -> bool:
    if isinstance(value, torch.Tensor) or not isinstance(value, int | float) or not value:
        return False
    return math.isfinite(value) and abs(math.frexp(value)[0]) == 0.5 and abs(value) < 2.0**60
