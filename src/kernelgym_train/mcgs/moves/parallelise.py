"""`parallelise`: an outermost loop with independent iterations runs on all cores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from kernelgym_train.mcgs.cpp.editing import with_lines_before
from kernelgym_train.mcgs.cpp.loops import Loop, read_functions
from kernelgym_train.mcgs.cpp.proofs import has_independent_iterations
from kernelgym_train.mcgs.moves.definition import Move, Realisation, with_flag
from kernelgym_train.mcgs.variant import Variant

__all__ = ["PARALLELISE"]


def _realise(variant: Variant) -> Iterator[Realisation]:
    """Yield OpenMP's directives for each outermost loop that allows them."""
    file = variant.file
    for function in read_functions(file.cpp):
        for loop in function.loops:
            if loop.pragmas or not has_independent_iterations(function, loop):
                continue
            choices = ["#pragma omp parallel for"]
            inner = loop.body[0] if len(loop.body) == 1 else None
            if (
                isinstance(inner, Loop)
                and not inner.pragmas
                and loop.variable not in inner.lower.names | inner.upper.names
                and has_independent_iterations(function, inner)
            ):
                choices.append("#pragma omp parallel for collapse(2)")
            for choice in choices:
                cpp = with_lines_before(file.cpp, [(loop.node, choice)])
                changed = dataclasses.replace(variant, source=file.with_cpp(cpp).source)
                yield Realisation(
                    loop.name, choice.removeprefix("#pragma omp "), with_flag(changed, "-fopenmp")
                )


PARALLELISE = Move(
    "parallelise",
    ("cpp",),
    "exact",
    20,
    2.0,
    "Share an outermost loop with independent iterations out among the cores.",
    _realise,
    knob="choice",
)
