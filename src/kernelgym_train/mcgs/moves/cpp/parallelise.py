"""`parallelise`: shares an outermost loop with independent iterations among cores.

Fewer threads than cores can be faster if cores share units, or if a core is busy.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.cpp.editing import with_lines_before
from kernelgym_train.mcgs.cpp.extension import file_of, with_cpp
from kernelgym_train.mcgs.cpp.forms import only_inner
from kernelgym_train.mcgs.cpp.loops import read_functions
from kernelgym_train.mcgs.cpp.proofs import has_independent_iterations
from kernelgym_train.mcgs.moves.definition import Realisation, SearchMove, with_flag
from kernelgym_train.mcgs.variant import Variant

_ALL = "#pragma omp parallel for"


def parallelise(cores: int) -> SearchMove:
    """Return the move for a machine.

    Args:
        cores: Number of cores. Powers of two below it, from 2 on, are tried as numbers of threads.
    """
    fewer = [2**power for power in range(cores.bit_length(), 0, -1) if 2**power < cores]
    counts = [f"{_ALL} num_threads({count})" for count in fewer]
    return SearchMove(
        "parallelise",
        "exact",
        20,
        2.0,
        "Share an outermost loop with independent iterations out among all cores, or some.",
        lambda variant: _realise(variant, counts),
    )


def _realise(variant: Variant, counts: list[str]) -> Iterator[Realisation]:
    """Yield OpenMP directives for each outermost loop whose iterations may run in parallel."""
    cpp = file_of(variant).cpp
    for function in read_functions(cpp):
        for loop in function.loops:
            if loop.pragmas or not has_independent_iterations(function, loop):
                continue
            choices = [_ALL]
            inner = only_inner(loop)
            if (
                inner is not None
                and loop.variable not in inner.bounds
                and inner.has_plain_bounds  # OpenMP evaluates them before the outer loop
                and has_independent_iterations(function, inner)
            ):
                choices.append(f"{_ALL} collapse(2)")
            for choice in choices + counts:
                changed = with_cpp(variant, with_lines_before(cpp, [(loop.node, choice)]))
                told = choice.removeprefix("#pragma omp ")
                yield Realisation(loop.name, told, with_flag(changed, "-fopenmp"))


PARALLELISE = parallelise(cores=1)
"""The move with all cores as the only number of threads."""
