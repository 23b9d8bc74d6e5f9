"""`vectorize_global_loads`: lets innermost loops compute several elements at once."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import with_lines_before
from kernelgym_train.mcgs.cpp.extension import file_of, with_cpp, with_edits
from kernelgym_train.mcgs.cpp.forms import CppFunction, CppLoop, directive_of, inner_loops
from kernelgym_train.mcgs.cpp.loops import each_loop, read_functions
from kernelgym_train.mcgs.cpp.proofs import has_independent_iterations, reductions
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.moves.definition import Realisation, search_move, with_flag
from kernelgym_train.mcgs.variant import Variant

_PARALLEL = re.compile(r"#\s*pragma\s+omp\s+parallel\s+for(?!.*\b(simd|collapse|reduction)\b)")


@search_move("reassociates", phase=50, weight=1.5)
def vectorize_global_loads(variant: Variant) -> Iterator[Realisation]:
    """Let a loop load, compute and store several neighbouring elements at once.

    Yields OpenMP's simd directive for all innermost loops, then for each alone.
    """
    cpp = file_of(variant).cpp
    found = [
        (loop, directive)
        for function, loop in each_loop(cpp)
        if (directive := _directive(function, loop)) is not None
    ]
    groups = [("all", found)]
    exact = [each for each in found if "reduction" not in each[1]]
    if exact and len(exact) < len(found):
        groups.append(("exact", exact))
    if len(found) > 1:
        groups += [(loop.name, [(loop, directive)]) for loop, directive in found]
    for choice, chosen in groups:
        if not chosen:
            continue
        lines = [(loop.node, directive) for loop, directive in chosen]
        changed = with_cpp(variant, with_lines_before(cpp, lines))
        if "-fopenmp" not in variant.flags:
            changed = with_flag(changed, "-fopenmp-simd")
        sums = any("reduction" in directive for _, directive in chosen)
        yield Realisation("innermost", choice, changed, "reassociates" if sums else "exact")
    for function in read_functions(cpp):
        for loop in function.loops:
            shared = _shared(function, loop)
            if shared is not None:
                changed = with_edits(variant, [shared])
                yield Realisation(loop.name, "parallel for simd", changed)


def _shared(function: CppFunction, loop: CppLoop) -> tuple[Node, str] | None:
    """Return a parallel loop's directive and one that also vectorises the loop; or None."""
    directive = directive_of(loop)
    if inner_loops(loop) or len(loop.pragmas) != 1 or loop.step != 1 or directive is None:
        return None
    found = _PARALLEL.match(text_of(directive))
    if not found or not has_independent_iterations(function, loop):
        return None
    return directive, f"{found[0]} simd{text_of(directive)[found.end() :]}"


def _directive(function: CppFunction, loop: CppLoop) -> str | None:
    """Return the directive that vectorises a loop, or None if that is not proven to be correct."""
    if inner_loops(loop) or loop.pragmas or loop.step != 1:
        return None
    carried = reductions(loop)
    if carried is None:
        return None
    if not has_independent_iterations(function, loop, frozenset(carried)):
        return None
    clauses = [f"reduction({operator}:{name})" for name, operator in sorted(carried.items())]
    return " ".join(["#pragma omp simd", *clauses])
