"""Writes a problem's reference module in KernelBench's format.

The module has its sizes at module level, ``Model``, ``get_inputs`` and ``get_init_inputs``. The
spelling of an operation (function, method or operator) varies with the problem. The constructor is
shared with the kernels' `ModelNew`, so that weights agree under the same seed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from kernelgym.suites.synthetic.operators import OPERATORS
from kernelgym.suites.synthetic.spec import (
    DotStage,
    Draw,
    ElementStep,
    MoveKind,
    MoveStage,
    RowsStage,
    Spec,
    Stage,
    Tail,
)
from kernelgym.text_templates import filled

_DRAWS: Mapping[Draw, str] = {
    "normal": "torch.randn({sizes})",
    "small": "torch.rand({sizes}) - 0.5",
    "wide": "torch.rand({sizes}) * 3.0 - 1.5",
    "positive": "torch.rand({sizes}) + 0.5",
    "index": "torch.randint(0, {bound}, ({sizes}{comma}))",
}
"""Python expressions that draw an input, by the name of its distribution."""

_MOVES: Mapping[MoveKind, tuple[str, ...]] = {
    "transpose": ("{x}.t().contiguous()", "{x}.transpose(0, 1).contiguous()"),
    "swap_last": ("{x}.transpose(1, 2).contiguous()", "{x}.permute(0, 2, 1).contiguous()"),
    "flip": ("torch.flip({x}, dims=[-1])",),
    "roll": ("torch.roll({x}, shifts={shift}, dims=-1)",),
    "select_rows": ("{x}[{index}]", "torch.index_select({x}, 0, {index})"),
    "select_cols": ("{x}[:, {index}]", "torch.index_select({x}, 1, {index})"),
    "gather_cols": ("torch.gather({x}, 1, {index})",),
}
"""Equivalent spellings in PyTorch of each rearrangement."""

_TAILS: Mapping[Tail, tuple[str, ...]] = {
    "sum": ("torch.sum({x}, dim={axis})", "{x}.sum(dim={axis})"),
    "mean": ("torch.mean({x}, dim={axis})", "{x}.mean(dim={axis})"),
    "max": ("torch.amax({x}, dim={axis})", "torch.max({x}, dim={axis})[0]"),
    "min": ("torch.amin({x}, dim={axis})", "torch.min({x}, dim={axis})[0]"),
    "norm2": ("torch.linalg.vector_norm({x}, dim={axis})",),
    "softmax": ("torch.softmax({x}, dim={axis})", "F.softmax({x}, dim={axis})"),
    "log_softmax": ("torch.log_softmax({x}, dim={axis})", "F.log_softmax({x}, dim={axis})"),
    "layer_norm": ("F.layer_norm({x}, ({x}.shape[-1],))",),
    "rms_norm": ("{x} * torch.rsqrt({x}.pow(2).mean(dim=-1, keepdim=True) + 1e-5)",),
    "unit_norm": ("{x} / torch.linalg.vector_norm({x}, dim={axis}, keepdim=True)",),
    "center": ("{x} - {x}.mean(dim={axis}, keepdim=True)",),
    "cumsum": ("torch.cumsum({x}, dim={axis})",),
    "reverse_cumsum": (
        "torch.flip(torch.cumsum(torch.flip({x}, [{axis}]), dim={axis}), [{axis}])",
    ),
}
"""Equivalent spellings in PyTorch of each operation along an axis."""

_NOTES = {
    "sum": "sum", "mean": "mean", "max": "maximum", "min": "minimum", "norm2": "Euclidean norm",
    "softmax": "softmax", "log_softmax": "log-softmax", "layer_norm": "layer normalisation",
    "rms_norm": "RMS normalisation", "unit_norm": "unit norm",
    "center": "centring", "cumsum": "running sum",
    "reverse_cumsum": "running sum from the end",
}  # fmt: skip


def write_reference(spec: Spec) -> str:
    """Return the source of the reference module."""
    rng = random.Random(f"spelling/{spec.spelling}")
    body: list[str] = []
    for stage in spec.stages:
        body += _stage_lines(stage, rng)
    inputs = []
    for tensor in spec.inputs:
        sizes, comma = ", ".join(tensor.shape), "," if len(tensor.shape) == 1 else ""
        drawn = _DRAWS[tensor.draw].format(sizes=sizes, bound=tensor.bound, comma=comma)
        inputs.append((tensor.name, drawn))
    given = {"spec": spec, "sizes": init_names(spec), "doc": _docstring(spec)}
    return filled(__package__, "reference.py.j2", **given, body=body, inputs=inputs)


def init_names(spec: Spec) -> list[str]:
    """Return the names of the sizes that a model's constructor takes."""
    return list(dict.fromkeys(size for param in spec.params for size in param.dims))


def _docstring(spec: Spec) -> str:
    if spec.level == 3:
        return f"A small {spec.family.replace('_', ' ')} block."
    parts: list[str] = []
    stage = spec.stages[0]
    if isinstance(stage, RowsStage):
        parts += [step.op for step in stage.before]
        if stage.tail:
            parts.append(f"{_NOTES[stage.tail]} along axis {stage.axis}")
    elif isinstance(stage, DotStage):
        kind = "matrix-vector product" if stage.n == "1" else "matrix product"
        parts.append("linear layer" if stage.layer else kind)
    else:
        parts.append(stage.kind.replace("_", " "))
    parts += [step.op for step in stage.after]
    return f"Computes {', '.join(parts)}.".replace("_", " ")


def _stage_lines(stage: Stage, rng: random.Random) -> list[str]:
    out = stage.out
    after = stage.after
    if isinstance(stage, DotStage):
        if stage.layer:
            lines = [f"{out} = self.{stage.layer}({stage.left})"]
            if after and after[0].operand == f"self.{stage.layer}.bias":
                after = after[1:]
        else:
            lines = [f"{out} = {_product(stage, rng)}"]
        return lines + _step_lines(after, out, out, rng)
    if isinstance(stage, MoveStage):
        spellings = _MOVES[stage.kind]
        moved = _spelled(rng, spellings, x=stage.source, index=stage.index, shift=stage.shift)
        return [f"{out} = {moved}", *_step_lines(after, out, out, rng)]
    lines = _step_lines(stage.before, stage.source, out, rng)
    if stage.tail:
        lines.append(f"{out} = {_tail(stage, out if lines else stage.source, rng)}")
    return lines + _step_lines(after, out, out, rng)


def _step_lines(
    steps: tuple[ElementStep, ...], source: str, out: str, rng: random.Random
) -> list[str]:
    lines = []
    for step in steps:
        text = rng.choice(OPERATORS[step.op].torch)
        lines.append(f"{out} = {text.format(*step.consts, x=source, t=step.operand)}")
        source = out
    return lines


def _product(stage: DotStage, rng: random.Random) -> str:
    left = f"{stage.left}.transpose(-2, -1)" if stage.left_t else stage.left
    right = f"{stage.right}.transpose(-2, -1)" if stage.right_t else stage.right
    call = "mv" if stage.n == "1" else "bmm" if stage.batch else "matmul"
    other = f"torch.matmul({left}, {right})" if stage.batch else f"{left} @ {right}"
    return rng.choice((f"torch.{call}({left}, {right})", other))


def _spelled(rng: random.Random, spellings: Sequence[str], **values: str | int) -> str:
    """Return one of several equivalent spellings of an operation, filled with values."""
    text = rng.choice(spellings) if len(spellings) > 1 else spellings[0]
    return text.format(**values)


def _tail(stage: RowsStage, x: str, rng: random.Random) -> str:
    rank = len(stage.shape)
    axis = rng.choice((stage.axis % rank, stage.axis % rank - rank))
    if stage.layer:
        return f"self.{stage.layer}({x})"
    text = _spelled(rng, _TAILS[stage.tail], x=x, axis=axis)
    weights = stage.weights if stage.tail == "rms_norm" else ()
    return text + "".join(f" * {weight}" for weight in weights)
