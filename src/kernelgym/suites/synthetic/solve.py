"""Writes correct kernels: a whole `ModelNew` module for any spec, in Triton or C++.

One host function per stage; `ModelNew` has the reference's constructor and calls them in turn. A
style seed varies skeleton, block sizes, names and argument order. A `Flaw` makes one stage wrong
on purpose (see `broken`).
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from kernelgym.suites.synthetic import cpp_parts, cpp_rows
from kernelgym.suites.synthetic.reference import constructor
from kernelgym.suites.synthetic.spec import DotStage, MoveStage, RowsStage, Spec, Stage
from kernelgym.suites.synthetic.style import Defect, Style, draw_style
from kernelgym.suites.synthetic.triton_dot import write_dot
from kernelgym.suites.synthetic.triton_flat import write_move, write_pointwise
from kernelgym.suites.synthetic.triton_parts import Part, arguments
from kernelgym.suites.synthetic.triton_rows import write_rows

__all__ = ["Flaw", "styles_of", "write_cpp", "write_triton"]


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing to get wrong."""

    defect: Defect
    stage: int = 0
    """Number of the stage."""
    slip: int = -1
    """Wrong constants: number of the step, counted over the stage; negative for the tail's."""


_FUNCTIONS = ("fused", "run", "launch", "compute", "forward")


def styles_of(spec: Spec, seed: int, flaw: Flaw | None = None) -> list[Style]:
    """Return the style of every stage."""
    rng = random.Random(f"style/{spec.name}/{spec.sizes}/{seed}")
    prefix = rng.choice(_FUNCTIONS)
    styles = []
    for number, stage in enumerate(spec.stages):
        name = f"{prefix}_{_noun(stage)}{f'_{number + 1}' if len(spec.stages) > 1 else ''}"
        defect = flaw.defect if flaw is not None and flaw.stage == number else None
        styles.append(draw_style(rng, spec, stage, name, defect))
    return styles


def _noun(stage: Stage) -> str:
    if isinstance(stage, DotStage):
        return "linear" if stage.layer else "matmul"
    if isinstance(stage, MoveStage):
        return stage.kind
    return stage.tail or (stage.before[0].op if len(stage.before) == 1 else "chain")


def _forward(spec: Spec, styles: list[Style], prefix: str) -> list[str]:
    names = ", ".join(tensor.name for tensor in spec.inputs)
    calls = [
        f"        {stage.out} = {prefix}{style.function}({', '.join(arguments(stage, style))})"
        for stage, style in zip(spec.stages, styles, strict=True)
    ]
    return [f"    def forward(self, {names}):", *calls, f"        return {spec.out}"]


def write_triton(spec: Spec, seed: int = 0, flaw: Flaw | None = None) -> str:
    """Return a Triton module."""
    styles = styles_of(spec, seed, flaw)
    lines = [
        "import torch",
        "import torch.nn as nn",
        "import triton",
        "import triton.language as tl",
    ]
    for number, (stage, style) in enumerate(zip(spec.stages, styles, strict=True)):
        slip = flaw.slip if flaw is not None and flaw.stage == number else -1
        text = _triton_part(spec, stage, style, slip)
        lines += ["", "", *text.kernel, "", "", *text.host]
    lines += ["", "", *constructor(spec, "ModelNew"), "", *_forward(spec, styles, "")]
    return "\n".join(lines) + "\n"


def _triton_part(spec: Spec, stage: Stage, style: Style, slip: int) -> Part:
    if isinstance(stage, DotStage):
        return write_dot(spec, stage, style, slip)
    if isinstance(stage, MoveStage):
        return write_move(spec, stage, style, slip)
    writer = write_rows if stage.tail else write_pointwise
    return writer(spec, stage, style, slip)


def write_cpp(spec: Spec, seed: int = 0, flaw: Flaw | None = None) -> str:
    """Return a C++ module that builds with ``load_inline``."""
    styles = styles_of(spec, seed, flaw)
    code = ["#include <torch/extension.h>", "#include <algorithm>", "#include <cmath>",
            "#include <cstdint>", "#include <vector>"]  # fmt: skip
    for number, (stage, style) in enumerate(zip(spec.stages, styles, strict=True)):
        slip = flaw.slip if flaw is not None and flaw.stage == number else -1
        code += ["", *_cpp_part(spec, stage, style, slip)]
    source = "\n".join(code)
    name = f"{styles[0].function}_{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    functions = ", ".join(f'"{style.function}"' for style in styles)
    lines = [
        "import torch",
        "import torch.nn as nn",
        "from torch.utils.cpp_extension import load_inline",
        "",
        'cpp_source = r"""',
        source,
        '"""',
        "",
        "extension = load_inline(",
        f'    name="{name}",',
        "    cpp_sources=cpp_source,",
        f"    functions=[{functions}],",
        '    extra_cflags=["-O3", "-march=native", "-fopenmp", "-ffast-math",',
        # An exponential may well overflow on its way to a finite result.
        '                  "-fno-finite-math-only"],',
        '    extra_ldflags=["-fopenmp"],',
        ")",
        "",
        "",
        *constructor(spec, "ModelNew"),
        "",
        *_forward(spec, styles, "extension."),
    ]
    return "\n".join(lines) + "\n"


def _cpp_part(spec: Spec, stage: Stage, style: Style, slip: int) -> tuple[str, ...]:
    if isinstance(stage, DotStage):
        return cpp_parts.write_dot(spec, stage, style, slip)
    if isinstance(stage, MoveStage):
        return cpp_parts.write_move(spec, stage, style, slip)
    if isinstance(stage, RowsStage) and stage.tail:
        return cpp_rows.write_rows(spec, stage, style, slip)
    return cpp_parts.write_pointwise(spec, stage, style, slip)
