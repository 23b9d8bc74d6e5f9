"""Draws level 1: single operators, each on a shape that shows a defect.

Sizes are prime wherever a block could hide a missing mask, and longer than one block wherever a
loop could be forgotten. Everything is a pure function of the random generator handed in.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from kernelgym.suites.synthetic.probe import draw_step
from kernelgym.suites.synthetic.spec import (
    DotStage,
    Draw,
    ElementStep,
    InputTensor,
    MoveKind,
    MoveStage,
    Param,
    Preset,
    RowsStage,
    Spec,
    Spread,
    Tail,
)

Sizes: TypeAlias = dict[str, int]
D = TypeVar("D")

_NORMAL = (
    "relu", "leaky_relu", "elu", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu", "softplus",
    "mish", "hardswish", "softsign", "abs", "square", "exp", "sin", "neg", "scale", "shift",
    "clamp",
)  # fmt: skip
_UNARY: tuple[tuple[str, Draw], ...] = (
    *((op, "normal") for op in _NORMAL),
    ("relu6", "wide"),
    ("log", "positive"),
    ("sqrt", "positive"),
    ("rsqrt", "positive"),
)

_DIMS: tuple[tuple[str, str, str], ...] = (
    ("batch", "rows", "cols"),
    ("groups", "tokens", "features"),
    ("batch_size", "seq_len", "hidden"),
    ("planes", "height", "width"),
)
"""Names of up to three axes, outermost first."""


def prime(rng: random.Random, low: int, high: int) -> int:
    """Return a prime in ``[low, high]``; an odd number if `high` is 5000 or more."""
    if high >= 5000:
        return rng.randrange(low, high) | 1
    return rng.choice(_primes_within(low, high))


@functools.cache
def _primes_within(low: int, high: int) -> tuple[int, ...]:
    return tuple(n for n in range(low, high + 1) if all(n % d for d in range(2, math.isqrt(n) + 1)))


def free_shape(rng: random.Random, preset: Preset, rank: int) -> tuple[tuple[str, ...], Sizes]:
    """Draw a shape for element-wise work."""
    a, b, c = rng.choice(_DIMS)
    gpu = preset == "gpu"
    if rank == 1:
        return (c,), {c: prime(rng, *((6_000_000, 12_000_000) if gpu else (1201, 3500)))}
    if rank == 2:
        narrow = rng.random() < 0.5
        if gpu:
            sizes = {b: prime(rng, 40_000, 90_000), c: prime(rng, 67, 127)}
            if not narrow:
                sizes = {b: prime(rng, 2003, 4001), c: prime(rng, 1501, 3001)}
        else:
            sizes = {b: prime(rng, 11, 31), c: prime(rng, 67, 113)}
            if not narrow:
                sizes = {b: prime(rng, 5, 13), c: prime(rng, 149, 263)}
        return (b, c), sizes
    ranges = ((7, 13), (607, 997), (701, 1201)) if gpu else ((2, 3), (5, 11), (71, 139))
    return (a, b, c), {n: prime(rng, *r) for n, r in zip((a, b, c), ranges, strict=True)}


def tail_shape(
    rng: random.Random, preset: Preset, rank: int, axis: int, longest: int = 4093
) -> tuple[tuple[str, ...], Sizes]:
    """Draw a shape for an operation along `axis`, which gets a length that shows defects."""
    names = rng.choice(_DIMS)[3 - rank :]
    gpu = preset == "gpu"
    short = rng.random() < 0.4
    sizes: Sizes = {}
    last = axis == rank - 1
    for place, name in enumerate(names):
        if place == axis:
            reach = (67, 127) if short else (1009, longest) if gpu else (149, 331)
        elif gpu:
            reach = (1009, 2999) if place == rank - 1 or rank == 2 else (5, 13)
            if last:
                reach = (3001, 4999) if place == rank - 2 else (2, 3)
        elif last:
            reach = (3, 5) if rank == 2 else (2, 3)
        else:
            reach = (41, 83) if place == rank - 1 else (2, 3)
        sizes[name] = prime(rng, *reach)
    return names, sizes


def extra_inputs(
    steps: tuple[ElementStep, ...], shape: tuple[str, ...], known: set[str]
) -> tuple[InputTensor, ...]:
    """Return the inputs that steps need, without those that exist already."""
    shapes: dict[Spread, tuple[str, ...]] = {
        "full": shape,
        "row": shape[-1:],
        "col": (*shape[:-1], "1"),
    }
    return tuple(
        InputTensor(step.operand, shapes[step.spread], "normal")
        for step in steps
        if step.operand and step.operand not in known and not step.operand.startswith("self.")
    )


def _elementwise(rng: random.Random, preset: Preset) -> Spec:
    op, draw = rng.choice(_UNARY)
    shape, sizes = free_shape(rng, preset, rng.choice((1, 2, 2, 3)))
    stage = RowsStage("out", "x", shape, (draw_step(rng, op),))
    return Spec.of_stage(1, "elementwise", op, sizes, (InputTensor("x", shape, draw),), stage)


def _binary(rng: random.Random, preset: Preset) -> Spec:
    op = rng.choice(("add", "sub", "mul", "max", "min"))
    spread: Spread = rng.choice(("full", "row", "col"))
    rank = rng.choice((1, 2, 3)) if spread == "full" else rng.choice((2, 3))
    shape, sizes = free_shape(rng, preset, rank)
    name = {"full": "y", "row": "bias", "col": "offset"}[spread]
    step = ElementStep(op, (), name, spread)
    inputs = (InputTensor("x", shape), *extra_inputs((step,), shape, {"x"}))
    name = op if spread == "full" else f"{op}_{spread}"
    return Spec.of_stage(1, "binary", name, sizes, inputs, RowsStage("out", "x", shape, (step,)))


def _along(family: str, tails: tuple[Tail, ...]) -> Callable[..., Spec]:
    def draw_one(rng: random.Random, preset: Preset) -> Spec:
        tail = rng.choice(tails)
        rank = rng.choice((2, 2, 3))
        axis = rng.choice((rank - 1, rank - 1, rng.randrange(rank)))
        longest = 1021 if tail == "softmax" else 4093
        shape, sizes = tail_shape(rng, preset, rank, axis, longest)
        stage = RowsStage("out", "x", shape, (), tail, axis)
        name = f"{tail}_axis{axis}"
        return Spec.of_stage(1, family, name, sizes, (InputTensor("x", shape),), stage)

    return draw_one


def _norm(rng: random.Random, preset: Preset) -> Spec:
    tail: Tail = rng.choice(("layer_norm", "rms_norm", "unit_norm", "center"))
    learned = tail in ("layer_norm", "rms_norm") and rng.random() < 0.6
    rank = rng.choice((2, 2, 3))
    shape, sizes = tail_shape(rng, preset, rank, rank - 1)
    params = (norm_param(tail, shape[-1:], "gain"),) if learned else ()
    # Drawn around one, so that forgetting to take the mean away shows.
    draw: Draw = "positive" if tail != "rms_norm" else "normal"
    stage = norm_stage("out", "x", shape, tail, *params)
    name = f"{tail}{'_learned' if learned else ''}"
    return Spec.of_stage(1, "norm", name, sizes, (InputTensor("x", shape, draw),), stage, params)


def norm_param(tail: Tail, shape: tuple[str, ...], vector: str) -> Param:
    """Return the declaration of a norm's weights: a layer; for RMS normalisation, a vector."""
    if tail == "layer_norm":
        return Param("norm", "layer_norm", shape)
    return Param(vector, "vector", shape)


def norm_stage(
    out: str,
    source: str,
    shape: tuple[str, ...],
    tail: Tail,
    param: Param | None = None,
    before: tuple[ElementStep, ...] = (),
    after: tuple[ElementStep, ...] = (),
) -> RowsStage:
    """Return the stage of a norm along the last axis, with the weights of `param` if any."""
    axis = len(shape) - 1
    if param is None:
        return RowsStage(out, source, shape, before, tail, axis, (), after)
    if param.kind == "vector":
        return RowsStage(out, source, shape, before, tail, axis, (param.weight,), after)
    weights = (param.weight, param.offset)
    return RowsStage(out, source, shape, before, tail, axis, weights, after, param.attr)


def _matmul(rng: random.Random, preset: Preset) -> Spec:
    left_t, right_t = rng.choice(((False, False), (False, True), (True, False), (True, True)))
    batch = "batch" if rng.random() < 0.3 else ""
    vector = not batch and not left_t and rng.random() < 0.35
    sizes = dot_sizes(rng, preset, bool(batch))
    if vector:
        reach = ((4001, 6001), (3001, 4999)) if preset == "gpu" else ((23, 47), (101, 199))
        sizes = {"m": prime(rng, *reach[0]), "k": prime(rng, *reach[1])}
        right_t = False
    lead = (batch,) if batch else ()
    left = (*lead, *(("k", "m") if left_t else ("m", "k")))
    right = ("k",) if vector else (*lead, *(("n", "k") if right_t else ("k", "n")))
    stage = DotStage("out", "a", "b", "m", "1" if vector else "n", "k", batch, left_t, right_t)
    name = "matvec" if vector else f"{'batched_' if batch else ''}matmul"
    name += ("_ta" if left_t else "") + ("_tb" if right_t else "")
    inputs = (InputTensor("a", left, "small"), InputTensor("b", right, "small"))
    return Spec.of_stage(1, "matvec" if vector else "matmul", name, sizes, inputs, stage)


def dot_sizes(rng: random.Random, preset: Preset, batched: bool = False) -> Sizes:
    """Draw sizes of a matrix product: several blocks along k, and odd sizes everywhere."""
    if preset == "gpu":
        reach = ((509, 1021), (509, 1021), (257, 769)) if batched else ((1021, 2003),) * 3
    else:
        reach = ((17, 29), (17, 29), (37, 61)) if batched else ((17, 43), (19, 47), (19, 61))
    sizes = {n: prime(rng, *r) for n, r in zip(("m", "n", "k"), reach, strict=True)}
    return {"batch": prime(rng, 5, 11) if preset == "gpu" else 2, **sizes} if batched else sizes


def _transpose(rng: random.Random, preset: Preset) -> Spec:
    kind: MoveKind = rng.choice(("transpose", "swap_last", "flip", "roll"))
    rank = {"transpose": 2, "swap_last": 3}.get(kind, rng.choice((2, 3)))
    shape, sizes = free_shape(rng, preset, rank)
    out = (*shape[:-2], shape[-1], shape[-2]) if kind in ("transpose", "swap_last") else shape
    shift = rng.randrange(3, 29) if kind == "roll" else 0
    stage = MoveStage("out", "x", kind, shape, out, "", shift)
    return Spec.of_stage(1, "transpose", kind, sizes, (InputTensor("x", shape),), stage)


def draw_move(
    rng: random.Random, preset: Preset
) -> tuple[MoveStage, tuple[InputTensor, ...], Sizes]:
    """Draw a gather problem: rows or columns selected by an index tensor."""
    kind: MoveKind = rng.choice(("select_rows", "select_cols", "gather_cols"))
    shape, sizes = free_shape(rng, preset, 2)
    rows, cols = shape
    sizes["picks"] = prime(rng, 1009, 2003) if preset == "gpu" else prime(rng, 13, 41)
    out = ("picks", cols) if kind == "select_rows" else (rows, "picks")
    at = (rows, "picks") if kind == "gather_cols" else ("picks",)
    bound = rows if kind == "select_rows" else cols
    inputs = (InputTensor("x", shape), InputTensor("index", at, "index", bound))
    return MoveStage("out", "x", kind, shape, out, "index"), inputs, sizes


def _gather(rng: random.Random, preset: Preset) -> Spec:
    stage, inputs, sizes = draw_move(rng, preset)
    return Spec.of_stage(1, "gather", stage.kind, sizes, inputs, stage)


def drawn_from(rng: random.Random, families: Mapping[D, int]) -> D:
    """Return one of several drawing functions at random, by weight."""
    return rng.choices(list(families), list(families.values()))[0]


_FAMILIES: Mapping[Callable[..., Spec], int] = {
    _elementwise: 24,
    _binary: 14,
    _along("reduction", ("sum", "mean", "max", "min", "norm2")): 15,
    _along("softmax", ("softmax", "log_softmax")): 10,
    _norm: 10,
    _matmul: 10,
    _transpose: 6,
    _gather: 6,
    _along("scan", ("cumsum", "reverse_cumsum")): 5,
}


def draw_single(rng: random.Random, preset: Preset) -> Spec:
    """Draw one level-1 problem."""
    return drawn_from(rng, _FAMILIES)(rng, preset)
