"""Wrong constants: what a slip of the pen turns an operator into.

`slipped` returns the altered text (or the altered step), `can_slip` says whether there is one,
`slip_value` gives its result on sample values. Whether a slip can be seen in a whole problem is
for `visible` to say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from kernelgym.suites.synthetic.operators import OPERATORS, Array, apply
from kernelgym.suites.synthetic.spec import ElementStep

__all__ = ["can_slip", "slip_value", "slipped"]

_Target = Literal["triton", "cpp"]


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def _slipped_mish(x: Any) -> Any:
    grown = np.exp(np.minimum(x, 20.0))
    return x * grown * (grown + 1.0) / (grown * (grown + 2.0) + 2.0)


_SLIPS: Mapping[str, tuple[str, str, Callable[[Any], Any]]] = {
    "relu": ("0.0", "0.4", lambda x: np.maximum(x, 0.4)),
    "relu6": ("0.0", "0.4", lambda x: np.clip(x, 0.4, 6.0)),
    "elu": ("- 1.0", "- 0.5", lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0.0)) - 0.5)),
    "sigmoid": ("(1.0", "(2.0", lambda x: 1.0 / (2.0 + np.exp(-x))),
    "tanh": ("-2.0", "-1.0", lambda x: np.tanh(x / 2.0)),
    "gelu": ("0.7071067811865476", "0.5", lambda x: x * _sigmoid(1.2 * x)),
    "gelu_tanh": ("1.5957691216057308", "0.7978845608028654", lambda x: x * _sigmoid(0.85 * x)),
    "silu": ("(1.0", "(2.0", lambda x: x / (2.0 + np.exp(-x))),
    "softplus": ("(1.0 +", "(2.0 +", lambda x: np.maximum(x, 0) + np.log(2 + np.exp(-abs(x)))),
    "mish": ("2.0)", "1.0)", _slipped_mish),
    "hardswish": ("3.0", "2.0", lambda x: x * np.clip(x + 2.0, 0.0, 6.0) / 6.0),
    "softsign": ("(1.0", "(2.0", lambda x: x / (2.0 + np.abs(x))),
    "rsqrt": ("1.0", "2.0", lambda x: 2.0 / np.sqrt(x)),
}
"""Literal to look for in an operator's text, what it becomes, and the result."""


def can_slip(step: ElementStep, target: _Target) -> bool:
    """Return whether the step has a constant to get wrong."""
    if step.consts:
        return True
    return step.op in _SLIPS and _SLIPS[step.op][0] in getattr(OPERATORS[step.op], target)


def slipped(step: ElementStep, target: _Target) -> tuple[str, ElementStep]:
    """Return the operator's text and the step with one constant wrong."""
    text: str = getattr(OPERATORS[step.op], target)
    if step.consts:
        first, *rest = step.consts
        return text, dataclasses.replace(step, consts=(round(first + 0.3, 2), *rest))
    old, new, _ = _SLIPS[step.op]
    return text.replace(old, new, 1), step


def slip_value(step: ElementStep, value: Array) -> Array:
    """Return the wrong step's result on sample values."""
    if step.consts:
        return apply(slipped(step, "triton")[1], value)
    result: Array = _SLIPS[step.op][2](value)
    return result
