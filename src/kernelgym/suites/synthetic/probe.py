"""Draws chains of element-wise steps that mean something.

Each chain is tried on a small fixed sample while it is drawn. It is kept only if its result is
spread out (no constant and not one of its inputs), stays in a sane range, and changes visibly
when any one step is left out: so no step is dead and "one step missing" is really wrong. Arguments
of ``log`` and the like are kept in their domain by interval arithmetic, not by the sample.

The sample is fixed, so that a chain is a pure function of the random generator handed in.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kernelgym.suites.synthetic.canonical import simplify
from kernelgym.suites.synthetic.operators import OPERATORS, Array, apply, span
from kernelgym.suites.synthetic.spec import ElementStep, Spread, Tail

_INPUTS, _ROWS, _COLS = 12, 8, 32
_ACTIVATIONS = (
    "relu", "leaky_relu", "elu", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu", "softplus",
    "mish", "hardswish", "softsign", "relu6",
)  # fmt: skip
_PLAIN = ("abs", "square", "exp", "log", "sqrt", "rsqrt", "sin", "clamp")
_AFFINE = ("scale", "shift", "neg")
_BINARY = ("add", "mul", "sub", "max", "min")
_EXTREME_SAFE = ("scale", "neg", "shift", "add", "sub", "mul", "abs")
"""Names of steps that stay visible below a maximum or minimum over many elements."""
_SOFTMAX_UNSAFE = ("square", "exp", "mul", "rsqrt")
"""Names of steps with heavy tails, after which a softmax over many elements would be one-hot."""
_SOFTMAX_STD = (0.5, 1.8)
_SPREAD_OUT = 0.3
_TRIES = 30

_Offered = Sequence[tuple[str, Spread]]
_Chain = tuple[tuple[ElementStep, ...], tuple[ElementStep, ...]]
"""Chain as (steps before the operation along the axis, steps after it)."""


@functools.cache
def _pool() -> Array:
    rng = random.Random("kernelgym synthetic probe")
    values = [rng.gauss(0.0, 1.0) for _ in range(_INPUTS * _ROWS * _COLS)]
    return np.array(values).reshape(_INPUTS, _ROWS, _COLS)


def sample(draw: str, which: int, spread: Spread = "full") -> Array:
    """Return sample values of one input, to probe a chain with.

    Args:
        draw: Distribution of the input.
        which: Number of the input, so that inputs differ.
        spread: Broadcasting of the input against the running value.
    """
    values: Array = _pool()[which % _INPUTS]
    if draw == "positive":
        values = 0.5 + 1.0 / (1.0 + np.exp(-1.7 * values))
    elif draw == "wide":
        values = 3.0 / (1.0 + np.exp(-1.7 * values)) - 1.5
    if spread == "row":
        return values[:1]
    if spread == "col":
        return values[:, :1]
    return values


def _log_softmax(x: Any) -> Any:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _norm2(x: Any) -> Any:
    return np.sqrt(np.square(x).sum(-1, keepdims=True))


_TAILS: Mapping[Tail, Callable[[Any], Any]] = {
    "": lambda x: x,
    "sum": lambda x: x.sum(-1, keepdims=True),
    "mean": lambda x: x.mean(-1, keepdims=True),
    "max": lambda x: x.max(-1, keepdims=True),
    "min": lambda x: x.min(-1, keepdims=True),
    "norm2": _norm2,
    "softmax": lambda x: np.exp(_log_softmax(x)),
    "log_softmax": _log_softmax,
    "layer_norm": lambda x: (
        (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    ),
    "rms_norm": lambda x: x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-5),
    "unit_norm": lambda x: x / _norm2(x),
    "center": lambda x: x - x.mean(-1, keepdims=True),
    "cumsum": lambda x: x.cumsum(-1),
    "reverse_cumsum": lambda x: x[..., ::-1].cumsum(-1)[..., ::-1],
}


def tail_of(tail: Tail, x: Array) -> Array:
    """Return the result of an operation along the last axis; a reduced axis keeps size 1."""
    result: Array = _TAILS[tail](x)
    return result


def share_apart(a: Array, b: Array) -> float:
    """Return the share of elements that differ visibly."""
    apart = np.abs(a - b) > 1e-3 + 0.01 * np.abs(b)
    return float(np.mean(apart | ~np.isfinite(a)))


def _spread_out(value: Array) -> bool:
    """Return True if no constant comes close to a large share of the elements."""
    flat = np.sort(value, axis=None)
    if not np.isfinite(flat).all() or abs(flat[0]) > 150 or abs(flat[-1]) > 150:
        return False
    width = 1e-3 * max(abs(flat[0]), abs(flat[-1]), 1e-6)
    reach = max(int(len(flat) * (1.0 - _SPREAD_OUT)), 1)
    return bool((flat[reach:] - flat[:-reach]).min() > width)


def draw_step(rng: random.Random, op: str) -> ElementStep:
    """Draw the constants of an element-wise step, and return the step."""
    consts = tuple(round(rng.uniform(*ends), 2) for ends in OPERATORS[op].ranges)
    if op == "scale" and rng.random() < 0.4:
        consts = (round(1.0 / consts[0], 2),)
    if op == "shift" and rng.random() < 0.5:
        consts = (-consts[0],)
    return ElementStep(op, consts)


def _pick_op(rng: random.Random, binary: bool) -> str:
    roll = rng.random()
    if roll < 0.38:
        return rng.choice(_ACTIVATIONS)
    if roll < 0.55:
        return rng.choice(_PLAIN)
    if roll < 0.75 or not binary:
        return rng.choice(_AFFINE)
    return rng.choice(_BINARY)


def draw_chain(
    rng: random.Random, counts: tuple[int, int], offered: _Offered, tail: Tail = ""
) -> _Chain:
    """Draw the steps before and after a tail.

    Args:
        rng: Source of randomness.
        counts: Numbers of steps before the operation along the axis and after it.
        offered: Second operands that may be used, each at most once: name, and how it meets the
            running value.
        tail: Operation along the axis, between the two groups of steps.

    Returns:
        The steps before the tail and those after it.
    """
    with np.errstate(all="ignore"):
        while True:
            values: dict[str, Array] = {}
            chain = _grown(rng, counts, offered, tail, values)
            if chain is not None and _tells(chain, tail, values):
                return chain


def _grown(
    rng: random.Random,
    counts: tuple[int, int],
    offered: _Offered,
    tail: Tail,
    values: dict[str, Array],
) -> _Chain | None:
    """Return a chain grown step by step, None if no step fits; add samples of its operands."""
    steps: list[ElementStep] = []
    value, low, high = sample("normal", 0), -math.inf, math.inf
    for place in range(sum(counts)):
        if place == counts[0]:
            value, low, high = tail_of(tail, value), -math.inf, math.inf
        grown = _grow(rng, value, low, offered, values, tail if place < counts[0] else "")
        if grown is None:
            return None
        step, value = grown
        low, high = span(step, low, high)
        steps.append(step)
    if counts[1] == 0 and tail == "softmax":
        least, most = _SOFTMAX_STD
        if not least <= float(value.std()) <= most:
            return None
    return tuple(steps[: counts[0]]), tuple(steps[counts[0] :])


def _tells(chain: _Chain, tail: Tail, values: Mapping[str, Array]) -> bool:
    """Return True if a chain's result is spread out, unlike its inputs, and shows every step."""
    before, after = chain
    groups = (before, after) if tail else ((*before, *after),)
    if any(len(simplify(group)) < len(group) for group in groups):
        return False
    source = sample("normal", 0)

    def run(first: Sequence[ElementStep], second: Sequence[ElementStep]) -> Array:
        result = source
        for step in first:
            result = apply(step, result, values.get(step.operand))
        result = tail_of(tail, result)
        for step in second:
            result = apply(step, result, values.get(step.operand))
        return result

    whole = run(before, after)
    if not _spread_out(whole) or float(whole.std()) < 0.02:
        return False
    operands = (values[step.operand] for step in (*before, *after) if step.operand)
    if any(share_apart(whole, array) < _SPREAD_OUT for array in (source, *operands)):
        return False
    shorter = [
        *((before[:i] + before[i + 1 :], after) for i in range(len(before))),
        *((before, after[:i] + after[i + 1 :]) for i in range(len(after))),
    ]
    return all(share_apart(run(*steps), whole) >= _SPREAD_OUT for steps in shorter)


def _grow(
    rng: random.Random,
    value: Array,
    low: float,
    offered: _Offered,
    values: dict[str, Array],
    tail: Tail,
) -> tuple[ElementStep, Array] | None:
    """Draw one more step that is defined, changes the result, and keeps values in range."""
    for _ in range(_TRIES):
        op = _pick_op(rng, bool(offered))
        if tail in ("max", "min") and op not in _EXTREME_SAFE:
            continue
        if tail == "softmax" and op in _SOFTMAX_UNSAFE:
            continue
        if low < OPERATORS[op].floor or (op == "exp" and float(value.max()) > 3.0):
            continue
        if op == "square" and float(np.abs(value).max()) > 9.0:
            continue
        step, second = draw_step(rng, op), None
        if OPERATORS[op].binary:
            free = [entry for entry in offered if entry[0] not in values]
            if not free:
                continue
            name, spread = rng.choice(free)
            step = ElementStep(op, (), name, spread)
            second = sample("normal", 1 + len(values), spread)
        result = apply(step, value, second)
        if float(np.abs(result).max()) > 60 or float(result.std()) < 0.1:
            continue
        if share_apart(result, value) >= _SPREAD_OUT:
            if second is not None:
                values[step.operand] = second
            return step, result
    return None
