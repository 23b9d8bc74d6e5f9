"""Writes a problem's reference module in KernelBench's format.

The module has its sizes at module level, ``Model``, ``get_inputs`` and ``get_init_inputs``. The
spelling of an operation (function, method or operator) varies with the problem. The constructor is
shared with the kernels' `ModelNew`, so that weights agree under the same seed.
"""

from __future__ import annotations

import random

from kernelgym.suites.synthetic.operators import OPERATORS
from kernelgym.suites.synthetic.spec import (
    DotStage,
    ElementStep,
    InputTensor,
    MoveStage,
    Param,
    RowsStage,
    Spec,
    Stage,
)

__all__ = ["constructor", "write_reference"]

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
    names = ", ".join(tensor.name for tensor in spec.inputs)
    lines = [
        "import torch",
        "import torch.nn as nn",
        "import torch.nn.functional as F",
        "",
        *(f"{name} = {value}" for name, value in spec.sizes),
        "",
        "",
        *constructor(spec, "Model", _docstring(spec)),
        "",
        f"    def forward(self, {names}):",
        *(f"        {line}" for line in body),
        f"        return {spec.out}",
        "",
        "",
        "def get_inputs():",
        *(f"    {tensor.name} = {_draw(tensor)}" for tensor in spec.inputs),
        f"    return [{names}]",
        "",
        "",
        "def get_init_inputs():",
        f"    return [{', '.join(_init_names(spec))}]",
    ]
    return "\n".join(lines) + "\n"


def constructor(spec: Spec, name: str, doc: str = "") -> list[str]:
    """Return the class statement and ``__init__`` of a model with the problem's weights."""
    lines = [f"class {name}(nn.Module):"]
    if doc:
        lines += [f'    """{doc}"""', ""]
    arguments = "".join(f", {size}" for size in _init_names(spec))
    lines += [f"    def __init__(self{arguments}):", "        super().__init__()"]
    for param in spec.params:
        lines += [f"        {line}" for line in _declaration(param)]
    return lines


def _init_names(spec: Spec) -> list[str]:
    return list(dict.fromkeys(size for param in spec.params for size in param.dims))


def _declaration(param: Param) -> list[str]:
    sizes = ", ".join(param.dims)
    match param.kind:
        case "linear":
            return [f"self.{param.attr} = nn.Linear({sizes}, bias={param.bias})"]
        case "layer_norm":
            # Away from one and zero, so that a kernel that leaves them out is wrong.
            return [
                f"self.{param.attr} = nn.LayerNorm({sizes})",
                f"nn.init.uniform_(self.{param.attr}.weight, 0.5, 1.5)",
                f"nn.init.uniform_(self.{param.attr}.bias, -0.5, 0.5)",
            ]
        case _:
            return [f"self.{param.attr} = nn.Parameter(torch.rand({sizes}) + 0.5)"]


def _draw(tensor: InputTensor) -> str:
    sizes = ", ".join(tensor.shape)
    match tensor.draw:
        case "small":
            return f"torch.rand({sizes}) - 0.5"
        case "wide":
            return f"torch.rand({sizes}) * 3.0 - 1.5"
        case "positive":
            return f"torch.rand({sizes}) + 0.5"
        case "index":
            comma = "," if len(tensor.shape) == 1 else ""
            return f"torch.randint(0, {tensor.bound}, ({sizes}{comma}))"
        case _:
            return f"torch.randn({sizes})"


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
        return [f"{out} = {_moved(stage, rng)}", *_step_lines(after, out, out, rng)]
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
    if stage.n == "1":
        return rng.choice((f"torch.mv({left}, {right})", f"{left} @ {right}"))
    if stage.batch:
        return rng.choice((f"torch.bmm({left}, {right})", f"torch.matmul({left}, {right})"))
    return rng.choice((f"torch.matmul({left}, {right})", f"{left} @ {right}"))


def _moved(stage: MoveStage, rng: random.Random) -> str:
    x, index = stage.source, stage.index
    match stage.kind:
        case "transpose":
            return rng.choice((f"{x}.t().contiguous()", f"{x}.transpose(0, 1).contiguous()"))
        case "swap_last":
            return rng.choice(
                (f"{x}.transpose(1, 2).contiguous()", f"{x}.permute(0, 2, 1).contiguous()")
            )
        case "flip":
            return f"torch.flip({x}, dims=[-1])"
        case "roll":
            return f"torch.roll({x}, shifts={stage.shift}, dims=-1)"
        case "select_rows":
            return rng.choice((f"{x}[{index}]", f"torch.index_select({x}, 0, {index})"))
        case "select_cols":
            return rng.choice((f"{x}[:, {index}]", f"torch.index_select({x}, 1, {index})"))
        case "gather_cols":
            return f"torch.gather({x}, 1, {index})"


def _tail(stage: RowsStage, x: str, rng: random.Random) -> str:
    rank = len(stage.shape)
    axis = rng.choice((stage.axis % rank, stage.axis % rank - rank))
    if stage.layer:
        return f"self.{stage.layer}({x})"
    match stage.tail:
        case "sum" | "mean":
            return rng.choice(
                (f"torch.{stage.tail}({x}, dim={axis})", f"{x}.{stage.tail}(dim={axis})")
            )
        case "max" | "min":
            return rng.choice(
                (f"torch.a{stage.tail}({x}, dim={axis})", f"torch.{stage.tail}({x}, dim={axis})[0]")
            )
        case "norm2":
            return f"torch.linalg.vector_norm({x}, dim={axis})"
        case "softmax" | "log_softmax":
            return rng.choice(
                (f"torch.{stage.tail}({x}, dim={axis})", f"F.{stage.tail}({x}, dim={axis})")
            )
        case "layer_norm":
            return f"F.layer_norm({x}, ({x}.shape[-1],))"
        case "rms_norm":
            text = f"{x} * torch.rsqrt({x}.pow(2).mean(dim=-1, keepdim=True) + 1e-5)"
            return text + "".join(f" * {weight}" for weight in stage.weights)
        case "unit_norm":
            return f"{x} / torch.linalg.vector_norm({x}, dim={axis}, keepdim=True)"
        case "center":
            return f"{x} - {x}.mean(dim={axis}, keepdim=True)"
        case "cumsum":
            return f"torch.cumsum({x}, dim={axis})"
        case "reverse_cumsum":
            return f"torch.flip(torch.cumsum(torch.flip({x}, [{axis}]), dim={axis}), [{axis}])"
        case "":
            return x
