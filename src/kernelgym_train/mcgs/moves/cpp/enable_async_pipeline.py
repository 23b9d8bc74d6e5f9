"""`enable_async_pipeline`: fetches elements into the caches before they are needed.

Two forms. Loops whose elements lie far apart fetch those of later iterations. Or the compiler
places such fetches itself, in all loops. Fetching an invalid address has no effect, and addresses
are computed as whole numbers, so that none overflows a pointer.
"""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import rewritten
from kernelgym_train.mcgs.cpp.extension import file_of, with_edits
from kernelgym_train.mcgs.cpp.forms import CppFunction, CppLoop, inner_loops
from kernelgym_train.mcgs.cpp.loops import each_loop
from kernelgym_train.mcgs.cpp.syntax import identifiers, index_node, text_of, walk
from kernelgym_train.mcgs.moves.definition import Realisation, search_move, with_flag
from kernelgym_train.mcgs.variant import Variant

_DISTANCES = (8, 32)
_FLAG = "-fprefetch-loop-arrays"
_MOST = 4  # elements fetched by one iteration


@search_move("exact", phase=62, weight=0.3)
def enable_async_pipeline(variant: Variant) -> Iterator[Realisation]:
    """Fetch what later iterations need into the caches while this one computes.

    Yields prefetches for each loop whose elements lie far apart, then the compiler's flag.
    """
    found = each_loop(file_of(variant).cpp)
    loops = [(function, loop) for function, loop in found if not inner_loops(loop)]
    for function, loop in loops:
        if any("simd" in each for each in loop.pragmas):
            continue
        for distance in _DISTANCES:
            lines = _fetches(function, loop, distance)
            if not lines:
                break
            body, inside = loop.body_node, text_of(loop.body_node)
            inner = inside[1:] if body.type == "compound_statement" else f" {inside} }}"
            changed = with_edits(variant, [(body, f"{{ {' '.join(lines)}{inner}")])
            yield Realisation(loop.name, f"{distance} ahead", changed)
    if loops and _FLAG not in variant.flags:
        yield Realisation("compiler", _FLAG, with_flag(variant, _FLAG))


def _fetches(function: CppFunction, loop: CppLoop, distance: int) -> list[str]:
    """Return prefetches for a loop's elements that lie far from those of the last iteration."""
    later = f"((int64_t){loop.variable} + {distance * loop.step})"
    found: dict[str, None] = {}

    def ahead(each: Node) -> str | None:
        return later if text_of(each) == loop.variable else None

    for node in (each for value in loop.values() for each in walk(value)):
        if node not in function.elements or identifiers(node) & set(loop.lets):
            continue
        array, index = function.plain_name(node), index_node(node)
        subscript = function.elements[node].flat
        stride = None if subscript is None else subscript.coefficient(loop.variable)
        if stride is None or stride.constant in (0, 1) or index is None or array is None:
            continue
        where = f"(uint64_t)&{array}[0] + sizeof({array}[0]) * ({rewritten(index, ahead)})"
        found[f"__builtin_prefetch((const void*)({where}));"] = None
    return list(found)[:_MOST]
