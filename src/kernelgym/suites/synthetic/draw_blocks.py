"""Draws level 2 (fused chains of two to six operations) and level 3 (small blocks).

The rules are those of level 1: awkward sizes, no step that cannot be seen in the result, and a
pure function of the random generator handed in.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from kernelgym.suites.synthetic.draw import (
    Sizes,
    dot_sizes,
    draw_move,
    extra_inputs,
    free_shape,
    prime,
    tail_shape,
)
from kernelgym.suites.synthetic.probe import draw_chain
from kernelgym.suites.synthetic.spec import (
    DotStage,
    ElementStep,
    InputTensor,
    Param,
    Preset,
    RowsStage,
    Spec,
    Spread,
    Stage,
    Tail,
)

__all__ = ["draw_block", "draw_fused", "glance"]

_FULL: tuple[tuple[str, Spread], ...] = (("y", "full"), ("z", "full"))
_ROW: tuple[tuple[str, Spread], ...] = (("bias", "row"), ("gain", "row"))
_COL: tuple[tuple[str, Spread], ...] = (("offset", "col"),)
_ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "elu", "mish", "softplus", "hardswish")


@dataclass(frozen=True, slots=True)
class _Frame:
    """What is decided of a chain before its steps are drawn, which is what takes the time."""

    shape: tuple[str, ...]
    sizes: Sizes
    counts: tuple[int, int]
    """Steps before the tail, and after it."""
    tail: Tail = ""


class _Chain:
    """Draws chains of one family: steps one after the other, around a tail if it has one."""

    def __init__(self, family: str, tails: tuple[Tail, ...] = ()) -> None:
        self.family, self._tails = family, tails

    def frame(self, rng: random.Random, preset: Preset) -> _Frame:
        """Draw a chain's shape and its length."""
        if not self._tails:
            shape, sizes = free_shape(rng, preset, rng.choice((1, 2, 2, 3)))
            return _Frame(shape, sizes, (rng.randint(2, 6), 0))
        tail = rng.choice(self._tails)
        rank = rng.choice((2, 2, 3))
        shape, sizes = tail_shape(rng, preset, rank, rank - 1, 1021)
        reduces = tail in ("sum", "mean", "max", "min", "norm2")
        after = 0 if reduces or tail in ("softmax", "unit_norm") else rng.randint(0, 2)
        return _Frame(shape, sizes, (rng.randint(1, 4 - after), after), tail)

    def __call__(self, rng: random.Random, preset: Preset) -> Spec:
        """Draw a chain."""
        frame = self.frame(rng, preset)
        shape, tail, rank = frame.shape, frame.tail, len(frame.shape)
        offered = _FULL if rank == 1 else (*_FULL, *_ROW, *_COL)
        before, behind = draw_chain(rng, frame.counts, offered, tail)
        steps = (*before, *behind)
        inputs = (InputTensor("x", shape), *extra_inputs(steps, shape, {"x"}))
        if not tail:
            stage = RowsStage("out", "x", shape, before)
            return _fused(self.family, _title(before), frame.sizes, inputs, stage)
        learned = tail == "layer_norm" and not behind and rng.random() < 0.5
        norm = Param("norm", "layer_norm", shape[-1:])
        params = (norm,) if learned else ()
        weights = (norm.weight, norm.offset) if learned else ()
        layer = norm.attr if learned else ""
        stage = RowsStage("out", "x", shape, before, tail, rank - 1, weights, behind, layer)
        title = "_".join(part for part in (_title(before), tail, _title(behind)) if part)
        return _fused(self.family, title, frame.sizes, inputs, stage, params)


def _linear_chain(rng: random.Random, preset: Preset) -> Spec:
    sizes = dot_sizes(rng, preset)
    shape = ("m", "n")
    offered: tuple[tuple[str, Spread], ...] = (
        ("residual", "full"),
        ("gain", "row"),
        ("offset", "col"),
    )
    steps, _ = draw_chain(rng, (rng.randint(1, 4), 0), offered)
    more = extra_inputs(steps, shape, set())
    if rng.random() < 0.5:
        param = Param("linear", "linear", ("k", "n"), rng.random() < 0.8)
        stage = linear("out", "x", param, "m", steps)
        inputs = (InputTensor("x", ("m", "k")), *more)
        return _fused("linear_chain", f"linear_{_title(steps)}", sizes, inputs, stage, (param,))
    right_t = rng.random() < 0.5
    right = InputTensor("b", ("n", "k") if right_t else ("k", "n"), "small")
    stage = DotStage("out", "a", "b", "m", "n", "k", "", False, right_t, _damped(steps, preset))
    inputs = (InputTensor("a", ("m", "k"), "small"), right, *more)
    return _fused("matmul_chain", f"matmul_{_title(steps)}", sizes, inputs, stage)


def _damped(steps: tuple[ElementStep, ...], preset: Preset) -> tuple[ElementStep, ...]:
    """Return the steps behind a scale that brings a product of normal matrices near one."""
    return (ElementStep("scale", (0.3 if preset == "gpu" else 1.9,)), *steps)


def _gather_chain(rng: random.Random, preset: Preset) -> Spec:
    move, inputs, sizes = draw_move(rng, preset)
    steps, _ = draw_chain(rng, (rng.randint(1, 4), 0), (*_FULL, *_ROW))
    stage = type(move)(move.out, move.source, move.kind, move.shape, move.out_shape, move.index,
                       move.shift, steps)  # fmt: skip
    inputs = (*inputs, *extra_inputs(steps, move.out_shape, set()))
    return _fused("gather_chain", f"{move.kind}_{_title(steps)}", sizes, inputs, stage)


def _fused(
    family: str,
    name: str,
    sizes: Sizes,
    inputs: tuple[InputTensor, ...],
    stage: Stage,
    params: tuple[Param, ...] = (),
) -> Spec:
    return Spec(2, family, name, tuple(sizes.items()), inputs, (stage,), params)


def _title(steps: tuple[ElementStep, ...]) -> str:
    return "_".join(step.op for step in steps)


def linear(
    out: str, source: str, param: Param, rows: str, after: tuple[ElementStep, ...] = ()
) -> DotStage:
    """Return the stage of a linear layer; its bias is the first step behind the product."""
    bias = (ElementStep("add", (), param.offset, "row"),) if param.bias else ()
    k, n = param.dims
    return DotStage(
        out, source, param.weight, rows, n, k, "", False, True, (*bias, *after), param.attr
    )


def _act(rng: random.Random) -> tuple[ElementStep, ...]:
    return (ElementStep(rng.choice(_ACTIVATIONS)),)


def _norm_stage(
    rng: random.Random, out: str, source: str, shape: tuple[str, ...]
) -> tuple[RowsStage, Param]:
    if rng.random() < 0.5:
        param = Param("norm", "layer_norm", shape[-1:])
        weights: tuple[str, ...] = (param.weight, param.offset)
        return RowsStage(out, source, shape, (), "layer_norm", 1, weights, (), "norm"), param
    param = Param("norm_weight", "vector", shape[-1:])
    return RowsStage(out, source, shape, (), "rms_norm", 1, (param.weight,)), param


def _block_sizes(rng: random.Random, preset: Preset) -> Sizes:
    if preset == "gpu":
        return {"tokens": prime(rng, 1021, 2003), "features": prime(rng, 509, 1021),
                "hidden": prime(rng, 1021, 2003)}  # fmt: skip
    return {"tokens": prime(rng, 11, 29), "features": prime(rng, 19, 31),
            "hidden": prime(rng, 37, 47)}  # fmt: skip


_WIDE, _DEEP = ("tokens", "features"), ("tokens", "hidden")


def _mlp(rng: random.Random, preset: Preset) -> Spec:
    bias, residual = rng.random() < 0.7, rng.random() < 0.5
    up = Param("fc1", "linear", ("features", "hidden"), bias)
    down = Param("fc2", "linear", ("hidden", "features"), bias)
    back = (ElementStep("add", (), "x", "full"),) if residual else ()
    last = rng.choice(((), (), _act(rng))) if not residual else ()
    stages = [linear("h", "x", up, "tokens", _act(rng)),
              linear("y", "h", down, "tokens", (*back, *last))]  # fmt: skip
    params = [up, down]
    if rng.random() < 0.3:
        tail: Tail = rng.choice(("softmax", "log_softmax"))
        stages_all: list[Stage] = [*stages, RowsStage("out", "y", _WIDE, (), tail, 1)]
        return _block(rng, preset, "mlp", stages_all, params)
    return _block(rng, preset, "mlp", list(stages), params)


def _gated_mlp(rng: random.Random, preset: Preset) -> Spec:
    bias = rng.random() < 0.4
    gate = Param("gate", "linear", ("features", "hidden"), bias)
    up = Param("up", "linear", ("features", "hidden"), bias)
    down = Param("down", "linear", ("hidden", "features"), bias)
    act = rng.choice((*_ACTIVATIONS, "sigmoid"))
    back = (ElementStep("add", (), "x", "full"),) if rng.random() < 0.4 else ()
    stages: list[Stage] = [
        linear("g", "x", gate, "tokens", (ElementStep(act),)),
        linear("h", "x", up, "tokens", (ElementStep("mul", (), "g", "full"),)),
        linear("out", "h", down, "tokens", back),
    ]
    return _block(rng, preset, "gated_mlp", stages, [gate, up, down])


def _attention(rng: random.Random, preset: Preset) -> Spec:
    bias, projected = rng.random() < 0.5, rng.random() < 0.5
    names = ("query", "key", "value")
    # A bias of the keys shifts a row of scores as a whole: softmax would hide it.
    params = [
        Param(name, "linear", ("features", "features"), bias and name != "key") for name in names
    ]
    sizes = _block_sizes(rng, preset)
    if preset == "cpu":
        sizes = {"tokens": prime(rng, 11, 13), "features": prime(rng, 17, 23)}
    # Queries and keys have a variance of a third: this brings the scores to about 1.5.
    scale = round(4.5 / math.sqrt(sizes["features"]), 2)
    scores = (
        ElementStep("scale", (scale,)),
        *rng.choice(((), (), (ElementStep("add", (), "mask", "full"),))),
    )
    after = _act(rng) if rng.random() < 0.4 else ()
    back = (ElementStep("add", (), "x", "full"),) if rng.random() < 0.4 else ()
    stages: list[Stage] = [
        linear(out, "x", param, "tokens")
        for out, param in zip(("queries", "keys", "values"), params, strict=True)
    ]
    stages += [
        DotStage("scores", "queries", "keys", "tokens", "tokens", "features", "", False, True,
            scores),
        RowsStage("probs", "scores", ("tokens", "tokens"), (), "softmax", 1),
        DotStage("mixed", "probs", "values", "tokens", "features", "tokens", "", False, False,
            () if projected else (*after, *back)),
    ]  # fmt: skip
    if projected:
        params.append(Param("proj", "linear", ("features", "features"), bias))
        stages.append(linear("out", "mixed", params[-1], "tokens", (*after, *back)))
    masked = len(scores) > 1
    more = (InputTensor("mask", ("tokens", "tokens")),) if masked else ()
    return _block(rng, preset, "attention", stages, params, more, sizes)


def _residual_norm(rng: random.Random, preset: Preset) -> Spec:
    norm, norm_param = _norm_stage(rng, "h", "x", _WIDE)
    param = Param("linear", "linear", ("features", "features"), rng.random() < 0.6)
    after = (*_act(rng), ElementStep("add", (), "x", "full"))
    stages: list[Stage] = [norm, linear("out", "h", param, "tokens", after)]
    return _block(rng, preset, "residual_norm", stages, [norm_param, param])


def _norm_mlp(rng: random.Random, preset: Preset) -> Spec:
    norm, norm_param = _norm_stage(rng, "normed", "x", _WIDE)
    up = Param("fc1", "linear", ("features", "hidden"), rng.random() < 0.6)
    down = Param("fc2", "linear", ("hidden", "features"), rng.random() < 0.6)
    back = (ElementStep("add", (), "x", "full"),) if rng.random() < 0.5 else ()
    stages: list[Stage] = [
        norm,
        linear("h", "normed", up, "tokens", _act(rng)),
        linear("out", "h", down, "tokens", back),
    ]
    return _block(rng, preset, "norm_mlp", stages, [norm_param, up, down])


def _linear_norm(rng: random.Random, preset: Preset) -> Spec:
    param = Param("linear", "linear", ("features", "hidden"), rng.random() < 0.6)
    norm, norm_param = _norm_stage(rng, "out", "h", _DEEP)
    after = rng.choice(((), _act(rng)))
    first = _act(rng) if not after or rng.random() < 0.3 else ()
    last = RowsStage(norm.out, norm.source, norm.shape, norm.before, norm.tail, norm.axis,
                norm.weights, after, norm.layer)  # fmt: skip
    stages: list[Stage] = [linear("h", "x", param, "tokens", first), last]
    return _block(rng, preset, "linear_norm", stages, [param, norm_param])


def _block(
    rng: random.Random,
    preset: Preset,
    family: str,
    stages: list[Stage],
    params: list[Param],
    more: tuple[InputTensor, ...] = (),
    sizes: Sizes | None = None,
) -> Spec:
    used = {name for stage in stages for name in _sizes_of(stage)}
    sizes = {k: v for k, v in (sizes or _block_sizes(rng, preset)).items() if k in used}
    inputs = (InputTensor("x", _WIDE), *more)
    return Spec(3, family, family, tuple(sizes.items()), inputs, tuple(stages), tuple(params))


def _sizes_of(stage: Stage) -> tuple[str, ...]:
    return (stage.m, stage.n, stage.k) if isinstance(stage, DotStage) else stage.shape


_LEVEL2: tuple[tuple[int, Callable[..., Spec]], ...] = (
    (40, _Chain("chain")),
    (14, _Chain("chain_reduction", ("sum", "mean", "max", "min", "norm2"))),
    (8, _Chain("chain_softmax", ("softmax", "log_softmax"))),
    (12, _Chain("chain_norm", ("layer_norm", "rms_norm", "unit_norm", "center"))),
    (20, _linear_chain),
    (6, _gather_chain),
)
_LEVEL3: tuple[tuple[int, Callable[..., Spec]], ...] = (
    (25, _mlp),
    (20, _gated_mlp),
    (20, _attention),
    (10, _residual_norm),
    (15, _norm_mlp),
    (10, _linear_norm),
)


def draw_fused(rng: random.Random, preset: Preset) -> Spec:
    """Draw one level-2 problem."""
    return _drawer_of_fused(rng)(rng, preset)


def glance(rng: random.Random, preset: Preset) -> tuple[tuple[str, ...], int]:
    """Tell family and length of the level-2 problem that `draw_fused` would draw.

    Returns:
        The families that it may be of, and how many operators it has, its tail included; 0 where
        that is not decided early.
    """
    draw = _drawer_of_fused(rng)
    if isinstance(draw, _Chain):
        frame = draw.frame(rng, preset)
        return (draw.family,), sum(frame.counts) + bool(frame.tail)
    return (("gather_chain",) if draw is _gather_chain else ("linear_chain", "matmul_chain")), 0


def _drawer_of_fused(rng: random.Random) -> Callable[..., Spec]:
    weights = [weight for weight, _ in _LEVEL2]
    return rng.choices([function for _, function in _LEVEL2], weights)[0]


def draw_block(rng: random.Random, preset: Preset) -> Spec:
    """Draw one level-3 problem."""
    weights = [weight for weight, _ in _LEVEL3]
    return rng.choices([function for _, function in _LEVEL3], weights)[0](rng, preset)
