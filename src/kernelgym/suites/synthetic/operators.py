"""The element-wise operators: how each is spelled in PyTorch, Triton, C++ and NumPy.

Templates use ``{x}`` for the running value, ``{t}`` for the second operand and ``{0}``, ``{1}``
for constants. The NumPy form is for probing a chain's behaviour while it is drawn, so a close
approximation does. Nothing here knows about shapes or indices.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kernelgym.suites.synthetic.spec import ElementStep

Array = npt.NDArray[np.float64]
_Span = tuple[float, float]

Target: TypeAlias = Literal["triton", "cpp", "gluon", "cute", "tilelang"]
"""Name of a language that kernels are written in."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One element-wise operation, with its text in each language."""

    name: str
    torch: tuple[str, ...]
    """Equivalent texts in PyTorch; ``{x}`` stands for the argument."""
    triton: str
    """Text in Triton."""
    cpp: str
    """Text in C++."""
    numpy: Callable[..., Any]
    """Function of the value, the constants and, for a binary operator, the second operand."""
    ranges: tuple[tuple[float, float], ...] = ()
    """Interval from which each constant is drawn."""
    binary: bool = False
    """True if the operator has a second operand."""
    floor: float = -math.inf
    """Smallest argument that the operator accepts."""
    rising: bool = False
    """True if the result increases with the argument, so that intervals map end by end."""
    image: _Span = (-math.inf, math.inf)
    """Interval that holds every result."""


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


_INF = math.inf
_POSITIVE = (0.0, _INF)
_SIGMOID = "1.0 / (1.0 + tl.exp(-{x}))"
_CPP_SIGMOID = "1.0f / (1.0f + std::exp(-{x}))"
# Where a sum or difference with a number near one would lose the digits, a series keeps them.
_SOFTPLUS = (
    "tl.where({x} < -4.0, tl.exp({x}) * (1.0 - tl.exp({x}) * (0.5 - tl.exp({x}) / 3.0)), "
    "tl.maximum({x}, 0.0) + tl.log(1.0 + tl.exp(-tl.abs({x}))))"
)
_CPP_SOFTPLUS = "std::max({x}, 0.0f) + std::log1p(std::exp(-std::fabs({x})))"
_GELU = "0.5 * {x} * (1.0 + tl.erf({x} * 0.7071067811865476))"
_CPP_GELU = "0.5f * {x} * (1.0f + std::erf({x} * 0.7071067811865476f))"
_TANH = (
    "tl.where(tl.abs({x}) < 0.02, {x} - {x} * {x} * {x} / 3.0, "
    "2.0 / (1.0 + tl.exp(-2.0 * {x})) - 1.0)"
)
_MISH_E = "tl.exp(tl.minimum({x}, 20.0))"
_MISH_N = f"{_MISH_E} * ({_MISH_E} + 2.0)"
_POLY = "1.5957691216057308 * ({x} + 0.044715 * {x} * {x} * {x})"
_CPP_POLY = "1.5957691216057308f * ({x} + 0.044715f * {x} * {x} * {x})"


_UNARY = (
    Operator(
        "relu", ("torch.relu({x})", "F.relu({x})", "{x}.relu()", "torch.clamp({x}, min=0.0)"),
        "tl.maximum({x}, 0.0)", "std::max({x}, 0.0f)",
        lambda x: np.maximum(x, 0.0), rising=True, image=_POSITIVE,
    ),
    Operator(
        "relu6", ("F.relu6({x})", "torch.clamp({x}, 0.0, 6.0)"),
        "tl.minimum(tl.maximum({x}, 0.0), 6.0)", "std::min(std::max({x}, 0.0f), 6.0f)",
        lambda x: np.clip(x, 0.0, 6.0), rising=True, image=(0.0, 6.0),
    ),
    Operator(
        "leaky_relu", ("F.leaky_relu({x}, {0})", "torch.where({x} > 0, {x}, {x} * {0})"),
        "tl.where({x} > 0, {x}, {x} * {0})", "({x} > 0.0f ? {x} : {x} * {0}f)",
        lambda x, a: np.where(x > 0, x, x * a), ((0.02, 0.4),), rising=True,
    ),
    Operator(
        "elu", ("F.elu({x})", "F.elu({x}, alpha=1.0)"),
        "tl.where({x} > 0, {x}, tl.where({x} > -0.02, {x} * (1.0 + {x} * (0.5 + {x} / 6.0)), "
        "tl.exp(tl.minimum({x}, 0.0)) - 1.0))",
        "({x} > 0.0f ? {x} : std::exp(std::min({x}, 0.0f)) - 1.0f)",
        lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0.0)) - 1.0),
        rising=True, image=(-1.0, _INF),
    ),
    Operator(
        "sigmoid", ("torch.sigmoid({x})", "{x}.sigmoid()", "F.sigmoid({x})"),
        _SIGMOID, _CPP_SIGMOID, _sigmoid, image=(0.0, 1.0),
    ),
    Operator(
        "tanh", ("torch.tanh({x})", "{x}.tanh()", "F.tanh({x})"),
        _TANH, "std::tanh({x})", np.tanh, image=(-1.0, 1.0),
    ),
    Operator(
        "gelu", ("F.gelu({x})", 'F.gelu({x}, approximate="none")'), _GELU, _CPP_GELU,
        lambda x: x * _sigmoid(1.702 * x), image=(-0.2, _INF),
    ),
    Operator(
        "gelu_tanh", ('F.gelu({x}, approximate="tanh")',),
        "{x} / (1.0 + tl.exp(-" + _POLY + "))", "{x} / (1.0f + std::exp(-" + _CPP_POLY + "))",
        lambda x: x * _sigmoid(1.702 * x), image=(-0.2, _INF),
    ),
    Operator(
        "silu", ("F.silu({x})", "{x} * torch.sigmoid({x})"),
        "{x} / (1.0 + tl.exp(-{x}))", "{x} / (1.0f + std::exp(-{x}))",
        lambda x: x * _sigmoid(x), image=(-0.3, _INF),
    ),
    Operator(
        "softplus", ("F.softplus({x})", "torch.log1p(torch.exp({x}))"),
        _SOFTPLUS, _CPP_SOFTPLUS, _softplus, image=_POSITIVE,
    ),
    Operator(
        "mish", ("F.mish({x})", "{x} * torch.tanh(F.softplus({x}))"),
        # tanh(log(1 + e)) is n / (n + 2) for n = e (e + 2).
        "{x} * (" + _MISH_N + ") / (" + _MISH_N + " + 2.0)",
        "{x} * std::tanh(" + _CPP_SOFTPLUS + ")",
        lambda x: x * np.tanh(_softplus(x)), image=(-0.4, _INF),
    ),
    Operator(
        "hardswish", ("F.hardswish({x})", "{x} * F.relu6({x} + 3.0) / 6.0"),
        "{x} * tl.minimum(tl.maximum({x} + 3.0, 0.0), 6.0) / 6.0",
        "{x} * std::min(std::max({x} + 3.0f, 0.0f), 6.0f) / 6.0f",
        lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0, image=(-0.4, _INF),
    ),
    Operator(
        "softsign", ("F.softsign({x})", "{x} / (1.0 + torch.abs({x}))"),
        "{x} / (1.0 + tl.abs({x}))", "{x} / (1.0f + std::fabs({x}))",
        lambda x: x / (1.0 + np.abs(x)), image=(-1.0, 1.0),
    ),
    Operator(
        "abs", ("torch.abs({x})", "{x}.abs()"), "tl.abs({x})", "std::fabs({x})",
        np.abs, image=_POSITIVE,
    ),
    Operator(
        "square", ("torch.square({x})", "{x} * {x}", "{x} ** 2"), "{x} * {x}", "{x} * {x}",
        np.square, image=_POSITIVE,
    ),
    Operator(
        "exp", ("torch.exp({x})", "{x}.exp()"), "tl.exp({x})", "std::exp({x})",
        np.exp, image=_POSITIVE,
    ),
    Operator(
        "log", ("torch.log({x})", "{x}.log()"), "tl.log({x})", "std::log({x})",
        np.log, floor=0.05, rising=True,
    ),
    Operator(
        "sqrt", ("torch.sqrt({x})", "{x}.sqrt()"), "tl.sqrt({x})", "std::sqrt({x})",
        np.sqrt, floor=0.05, rising=True, image=_POSITIVE,
    ),
    Operator(
        "rsqrt", ("torch.rsqrt({x})", "1.0 / torch.sqrt({x})"),
        "1.0 / tl.sqrt({x})", "1.0f / std::sqrt({x})",
        lambda x: 1.0 / np.sqrt(x), floor=0.05, image=_POSITIVE,
    ),
    Operator(
        "sin", ("torch.sin({x})", "{x}.sin()"), "tl.sin({x})", "std::sin({x})",
        np.sin, image=(-1.0, 1.0),
    ),
    Operator(
        "neg", ("-{x}", "torch.neg({x})"), "-{x}", "-{x}", np.negative,
    ),
    Operator(
        "scale", ("{x} * {0}", "{0} * {x}", "torch.mul({x}, {0})"),
        "{x} * {0}", "{x} * {0}f", lambda x, a: x * a, ((1.3, 2.6),),
    ),
    Operator(
        "shift", ("{x} + {0}", "torch.add({x}, {0})"),
        "{x} + {0}", "{x} + {0}f", lambda x, a: x + a, ((0.4, 1.6),), rising=True,
    ),
    Operator(
        "clamp",
        ("torch.clamp({x}, {0}, {1})", "{x}.clamp({0}, {1})", "F.hardtanh({x}, {0}, {1})"),
        "tl.minimum(tl.maximum({x}, {0}), {1})", "std::min(std::max({x}, {0}f), {1}f)",
        lambda x, a, b: np.clip(x, a, b), ((-0.8, -0.4), (0.4, 0.9)), rising=True,
    ),
)  # fmt: skip
_SIGNS = (("add", "+", np.add), ("sub", "-", np.subtract), ("mul", "*", np.multiply))
_BINARY = [
    Operator(
        name, (f"{{x}} {sign} {{t}}", f"torch.{name}({{x}}, {{t}})"),
        f"{{x}} {sign} {{t}}", f"{{x}} {sign} {{t}}", function, binary=True,
    )
    for name, sign, function in _SIGNS
] + [
    Operator(
        name, (f"torch.{name}imum({{x}}, {{t}})", f"torch.{name}({{x}}, {{t}})"),
        f"tl.{name}imum({{x}}, {{t}})", f"std::{name}({{x}}, {{t}})", function, binary=True,
    )
    for name, function in (("max", np.maximum), ("min", np.minimum))
]  # fmt: skip

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {entry.name: entry for entry in (*_UNARY, *_BINARY)}
)


def apply(step: ElementStep, value: Array, operand: Array | None = None) -> Array:
    """Return the result of one element-wise step on sample values."""
    operator = OPERATORS[step.op]
    extra = (operand,) if operator.binary else ()
    result: Array = operator.numpy(value, *step.consts, *extra)
    return result


def span(step: ElementStep, low: float, high: float) -> _Span:
    """Return an interval that holds the step's results for arguments in ``[low, high]``."""
    operator = OPERATORS[step.op]
    if operator.binary:
        return -_INF, _INF
    if step.op == "neg":
        return -high, -low
    if step.op == "scale":
        ends = sorted((low * step.consts[0], high * step.consts[0]))
        return ends[0], ends[1]
    if step.op == "shift":
        return low + step.consts[0], high + step.consts[0]
    if step.op == "clamp":
        floor, ceiling = step.consts
        return min(max(low, floor), ceiling), min(max(high, floor), ceiling)
    least, most = operator.image
    if operator.rising and low >= operator.floor:
        if math.isfinite(low):
            least = max(least, float(operator.numpy(low, *step.consts)))
        if math.isfinite(high):
            most = min(most, float(operator.numpy(high, *step.consts)))
    return least, most


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
"""For each slip: literal to look for in an operator's text, its wrong replacement, and the
result."""


def can_slip(step: ElementStep, target: Target) -> bool:
    """Return True if a step has a constant that can be made wrong."""
    if step.consts:
        return True
    return step.op in _SLIPS and _SLIPS[step.op][0] in _text(step, target)


def _text(step: ElementStep, target: Target) -> str:
    operator = OPERATORS[step.op]
    return operator.cpp if target == "cpp" else operator.triton


def step_and_text(step: ElementStep, target: Target, slip: bool = False) -> tuple[str, ElementStep]:
    """Return an element-wise step and its text, with one constant wrong if `slip` is true."""
    text = _text(step, target)
    if not slip:
        return text, step
    if step.consts:
        first, *rest = step.consts
        return text, dataclasses.replace(step, consts=(round(first + 0.3, 2), *rest))
    old, new, _ = _SLIPS[step.op]
    return text.replace(old, new, 1), step


def slip_value(step: ElementStep, value: Array) -> Array:
    """Return the result on sample values of a step with one wrong constant."""
    if step.consts:
        return apply(step_and_text(step, "triton", slip=True)[1], value)
    result: Array = _SLIPS[step.op][2](value)
    return result


def pad_value(steps: Sequence[ElementStep]) -> str:
    """Return the value for masked-out elements, inside the domain of every operator."""
    return "1.0" if any(OPERATORS[step.op].floor > 0 for step in steps) else "0.0"
