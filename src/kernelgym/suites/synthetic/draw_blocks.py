"""Draws level 2 (fused chains of two to six operations) and level 3 (small blocks).

The rules are those of level 1: awkward sizes, no step that cannot be seen in the result, and a
pure function of the random generator handed in.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kernelgym.suites.synthetic.draw import (
    Sizes,
    dot_sizes,
    draw_move,
    drawn_from,
    extra_inputs,
    free_shape,
    norm_param,
    norm_stage,
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

_FULL: tuple[tuple[str, Spread], ...] = (("y", "full"), ("z", "full"))
_ROW: tuple[tuple[str, Spread], ...] = (("bias", "row"), ("gain", "row"))
_COL: tuple[tuple[str, Spread], ...] = (("offset", "col"),)
_ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "elu", "mish", "softplus", "hardswish")


@dataclass(frozen=True, slots=True)
class _Frame:
    """Shape, length and family of a chain, drawn before its steps."""

    shape: tuple[str, ...]
    sizes: Sizes
    counts: tuple[int, int]
    """Numbers of steps before and after the operation along the axis."""
    tail: Tail = ""


class _Chain:
    """Draws chains of one family, step by step, perhaps around an operation along an axis."""

    def __init__(self, family: str, tails: tuple[Tail, ...] = ()) -> None:
        self.family, self._tails = family, tails

    def frame(self, rng: random.Random, preset: Preset) -> _Frame:
        """Draw the shape and the length of a chain."""
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
        """Draw a chain of one family."""
        frame = self.frame(rng, preset)
        shape, tail, rank = frame.shape, frame.tail, len(frame.shape)
        offered = _FULL if rank == 1 else (*_FULL, *_ROW, *_COL)
        before, behind = draw_chain(rng, frame.counts, offered, tail)
        steps = (*before, *behind)
        inputs = (InputTensor("x", shape), *extra_inputs(steps, shape, {"x"}))
        if not tail:
            stage = RowsStage("out", "x", shape, before)
            return Spec.of_stage(2, self.family, _title(before), frame.sizes, inputs, stage)
        learned = tail == "layer_norm" and not behind and rng.random() < 0.5
        param = norm_param(tail, shape[-1:], "") if learned else None
        stage = norm_stage("out", "x", shape, tail, param, before, behind)
        params = () if param is None else (param,)
        title = "_".join(part for part in (_title(before), tail, _title(behind)) if part)
        return Spec.of_stage(2, self.family, title, frame.sizes, inputs, stage, params)


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
        return Spec.of_stage(
            2, "linear_chain", f"linear_{_title(steps)}", sizes, inputs, stage, (param,)
        )
    right_t = rng.random() < 0.5
    right = InputTensor("b", ("n", "k") if right_t else ("k", "n"), "small")
    # A scale that brings the product of two random matrices near one.
    damped = (ElementStep("scale", (0.3 if preset == "gpu" else 1.9,)), *steps)
    stage = DotStage("out", "a", "b", "m", "n", "k", "", False, right_t, damped)
    inputs = (InputTensor("a", ("m", "k"), "small"), right, *more)
    return Spec.of_stage(2, "matmul_chain", f"matmul_{_title(steps)}", sizes, inputs, stage)


def _gather_chain(rng: random.Random, preset: Preset) -> Spec:
    move, inputs, sizes = draw_move(rng, preset)
    steps, _ = draw_chain(rng, (rng.randint(1, 4), 0), (*_FULL, *_ROW))
    stage = replace(move, after=steps)
    inputs = (*inputs, *extra_inputs(steps, move.out_shape, set()))
    return Spec.of_stage(2, "gather_chain", f"{move.kind}_{_title(steps)}", sizes, inputs, stage)


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


def _drawn_norm(
    rng: random.Random, out: str, source: str, shape: tuple[str, ...]
) -> tuple[RowsStage, Param]:
    """Return a layer norm or an RMS norm, with its weights."""
    tail: Tail = "layer_norm" if rng.random() < 0.5 else "rms_norm"
    param = norm_param(tail, shape[-1:], "norm_weight")
    return norm_stage(out, source, shape, tail, param), param


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
    stages: list[Stage] = [
        linear("h", "x", up, "tokens", _act(rng)),
        linear("y", "h", down, "tokens", (*back, *last)),
    ]
    if rng.random() < 0.3:
        stages.append(norm_stage("out", "y", _WIDE, rng.choice(("softmax", "log_softmax"))))
    return _block(rng, preset, "mlp", stages, [up, down])


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
    norm, norm_param = _drawn_norm(rng, "h", "x", _WIDE)
    param = Param("linear", "linear", ("features", "features"), rng.random() < 0.6)
    after = (*_act(rng), ElementStep("add", (), "x", "full"))
    stages: list[Stage] = [norm, linear("out", "h", param, "tokens", after)]
    return _block(rng, preset, "residual_norm", stages, [norm_param, param])


def _norm_mlp(rng: random.Random, preset: Preset) -> Spec:
    norm, norm_param = _drawn_norm(rng, "normed", "x", _WIDE)
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
    norm, norm_param = _drawn_norm(rng, "out", "h", _DEEP)
    after = rng.choice(((), _act(rng)))
    first = _act(rng) if not after or rng.random() < 0.3 else ()
    stages: list[Stage] = [
        linear("h", "x", param, "tokens", first),
        replace(norm, after=after),
    ]
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
    used = {
        name
        for stage in stages
        for name in ((stage.m, stage.n, stage.k) if isinstance(stage, DotStage) else stage.shape)
    }
    sizes = {k: v for k, v in (sizes or _block_sizes(rng, preset)).items() if k in used}
    inputs = (InputTensor("x", _WIDE), *more)
    return Spec(3, family, family, tuple(sizes.items()), inputs, tuple(stages), tuple(params))


_LEVEL2: Mapping[Callable[..., Spec], int] = {
    _Chain("chain"): 40,
    _Chain("chain_reduction", ("sum", "mean", "max", "min", "norm2")): 14,
    _Chain("chain_softmax", ("softmax", "log_softmax")): 8,
    _Chain("chain_norm", ("layer_norm", "rms_norm", "unit_norm", "center")): 12,
    _linear_chain: 20,
    _gather_chain: 6,
}
_LEVEL3: Mapping[Callable[..., Spec], int] = {
    _mlp: 25,
    _gated_mlp: 20,
    _attention: 20,
    _residual_norm: 10,
    _norm_mlp: 15,
    _linear_norm: 10,
}


def draw_fused(rng: random.Random, preset: Preset) -> Spec:
    """Draw one level-2 problem."""
    return drawn_from(rng, _LEVEL2)(rng, preset)


def glance(rng: random.Random, preset: Preset) -> tuple[tuple[str, ...], int]:
    """Return family and length of the level-2 problem that `draw_fused` would draw.

    Returns:
        The families that it may be of, and how many operators it has, its tail included; 0 where
        that is not decided early.
    """
    draw = drawn_from(rng, _LEVEL2)
    if isinstance(draw, _Chain):
        frame = draw.frame(rng, preset)
        return (draw.family,), sum(frame.counts) + bool(frame.tail)
    return (("gather_chain",) if draw is _gather_chain else ("linear_chain", "matmul_chain")), 0


def draw_block(rng: random.Random, preset: Preset) -> Spec:
    """Draw one level-3 problem."""
    return drawn_from(rng, _LEVEL3)(rng, preset)
