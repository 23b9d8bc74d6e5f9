"""Correct kernels for problems of the suite: a whole `ModelNew` module.

Triton and C++ reach every problem. Gluon and CuTe DSL, whose text is made of Triton's, reach those
without a matrix product; TileLang those of element-wise steps and work along an axis.

One host function per stage; `ModelNew` has the reference's constructor and calls them in turn. A
style seed varies skeleton, block sizes, names and argument order. A `Flaw` makes one stage wrong
on purpose (see `broken`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from kernelgym.errors import UnsupportedLanguage
from kernelgym.suites.synthetic import (
    cpp,
    cute,
    gluon,
    tilelang,
    triton_dot,
    triton_flat,
    triton_rows,
)
from kernelgym.suites.synthetic.operators import Target
from kernelgym.suites.synthetic.reference import init_names
from kernelgym.suites.synthetic.source import spec_of
from kernelgym.suites.synthetic.spec import DotStage, MoveStage, Spec, Stage
from kernelgym.suites.synthetic.style import Defect, Style, draw_style
from kernelgym.suites.synthetic.triton_parts import StageText, arguments, write_triton
from kernelgym.text_templates import filled
from kernelgym.types import Kernel, Problem

_FUNCTIONS = ("fused", "run", "launch", "compute", "forward")

_TRITON: Mapping[str, Callable[..., StageText]] = {
    "dot": triton_dot.write_dot,
    "move": triton_flat.write_move,
    "rows": triton_rows.write_rows,
    "pointwise": triton_flat.write_pointwise,
}
_DIALECTS: Mapping[str, Callable[[StageText], list[str]]] = {
    "triton": write_triton,
    "gluon": gluon.write_gluon,
    "cute": cute.write_cute,
}
"""Functions that write a stage's kernel, by the language into which Triton's text is turned."""
_CPP: Mapping[str, Callable[..., tuple[str, ...]]] = {
    "dot": cpp.write_dot,
    "move": cpp.write_move,
    "rows": cpp.write_rows,
    "pointwise": cpp.write_pointwise,
}
"""Functions that write a stage in C++, by the kind of the stage."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Defect of one stage of a kernel that is wrong on purpose."""

    defect: Defect
    stage: int = 0
    """Number of the stage."""
    slip: int = -1
    """Number of the step with a wrong constant, counted over the stage; negative for the operation
    along the axis."""


def check_target(language: str) -> None:
    """Refuse a language in which the suite writes no kernels.

    Raises:
        UnsupportedLanguage: If they cannot.
    """
    if language not in get_args(Target):
        *others, last = get_args(Target)
        raise UnsupportedLanguage(
            f"the Synthetic suite writes no kernels in {language!r}; "
            f"it writes {', '.join(others)} and {last}"
        )


def reaches(language: Target, problem: Problem) -> bool:
    """Return True if kernels for a problem can be written in a language.

    Raises:
        ProblemError: If the problem is not one of this suite's.
    """
    return _reaches(language, spec_of(problem))


def _reaches(language: Target, spec: Spec) -> bool:
    if language == "tilelang":
        return all(map(tilelang.writes, spec.stages))
    whole = language in ("triton", "cpp")
    return whole or not any(isinstance(stage, DotStage) for stage in spec.stages)


def check_reach(language: Target, spec: Spec) -> None:
    """Refuse a problem for which the suite writes no kernel in a language.

    Raises:
        UnsupportedLanguage: If they cannot.
    """
    check_target(language)
    if not _reaches(language, spec):
        raise UnsupportedLanguage(
            f"the Synthetic suite writes no kernel in {language!r} for problem {spec.name}, "
            "whose operations are beyond its templates; it writes one in triton and in cpp"
        )


def solve(problem: Problem, language: Target = "triton", style_seed: int = 0) -> Kernel:
    """Return a correct kernel for a problem in fp32; in TileLang for fp16 and bf16.

    Args:
        problem: A problem of this suite.
        language: ``triton``, ``cpp``, ``gluon``, ``cute`` or ``tilelang``.
        style_seed: Seed of the style: skeleton, block sizes, names and argument order.

    Raises:
        ProblemError: If the problem is not one of this suite's.
        UnsupportedLanguage: If no kernel for the problem can be written in `language`; see
            `reaches`.
    """
    spec = spec_of(problem)
    check_reach(language, spec)
    return Kernel(write_kernel(spec, language, style_seed), language)


def styles_of(
    spec: Spec, seed: int, flaw: Flaw | None = None, language: Target = "triton"
) -> list[Style]:
    """Return the style in which each stage of a kernel is written."""
    rng = random.Random(f"style/{spec.name}/{spec.sizes}/{seed}")
    prefix = rng.choice(_FUNCTIONS)
    styles = []
    for number, stage in enumerate(spec.stages):
        name = f"{prefix}_{_noun(stage)}{f'_{number + 1}' if len(spec.stages) > 1 else ''}"
        style = draw_style(rng, spec, stage, name)
        if language == "cute":
            style = cute.thread_style(spec, stage, style)
        elif language == "tilelang":
            style = tilelang.tile_style(spec, stage, style)
        if flaw is not None and flaw.stage == number:
            style = dataclasses.replace(style, defect=flaw.defect, slip=flaw.slip)
        styles.append(style)
    return styles


def _noun(stage: Stage) -> str:
    if isinstance(stage, DotStage):
        return "linear" if stage.layer else "matmul"
    if isinstance(stage, MoveStage):
        return stage.kind
    return stage.tail or (stage.before[0].op if len(stage.before) == 1 else "chain")


def _kind(stage: Stage) -> str:
    if isinstance(stage, DotStage):
        return "dot"
    if isinstance(stage, MoveStage):
        return "move"
    return "rows" if stage.tail else "pointwise"


def write_kernel(spec: Spec, language: Target, seed: int = 0, flaw: Flaw | None = None) -> str:
    """Return the module of a spec's kernel; in C++ it builds the source with ``load_inline``."""
    styles = styles_of(spec, seed, flaw, language)
    pairs = list(zip(spec.stages, styles, strict=True))
    stages: list[list[str]] = []
    extension: dict[str, Any] = {}
    if language == "tilelang":
        stages = [tilelang.write_tiles(spec, stage, style) for stage, style in pairs]
    elif language != "cpp":
        write = _DIALECTS[language]
        stages = [write(_TRITON[_kind(stage)](spec, stage, style)) for stage, style in pairs]
    else:
        code = ["#include <torch/extension.h>", "#include <algorithm>", "#include <cmath>",
                "#include <cstdint>", "#include <vector>"]  # fmt: skip
        for stage, style in pairs:
            code += ["", *_CPP[_kind(stage)](spec, stage, style)]
        functions, source = [style.function for style in styles], "\n".join(code)
        name = f"{functions[0]}_{hashlib.sha256(source.encode()).hexdigest()[:8]}"
        extension = {"name": name, "source": source, "functions": functions}
    prefix = "extension." if extension else ""
    calls = [
        f"{stage.out} = {prefix}{style.function}({', '.join(arguments(stage, style))})"
        for stage, style in pairs
    ]
    given = {"spec": spec, "sizes": init_names(spec), "language": language, **extension}
    return filled(__package__, "kernel.py.j2", **given, stages=stages, calls=calls)
