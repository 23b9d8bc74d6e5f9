"""`switch_to_mma_or_wgmma`: computes a tile of dot products by vector multiply-adds.

The counterpart on a CPU to a GPU's matrix instructions. Applies to two loops over elements around a
loop over terms, whose operands lie side by side along the terms. Each sum is kept in a vector of
partial sums, which are added up at the end, so that sums are taken in another order. Vectors use
the compiler's ``vector_size``, as for `register_block`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.accumulation import Accumulation
from kernelgym_train.mcgs.cpp.editing import replaced, rewritten
from kernelgym_train.mcgs.cpp.forms import CppFunction, CppLoop
from kernelgym_train.mcgs.cpp.loops import each_loop
from kernelgym_train.mcgs.cpp.syntax import text_of, walk
from kernelgym_train.mcgs.cpp.tiling import in_tiles, names_in_tiles, read_nest
from kernelgym_train.mcgs.cpp.vectors import is_arithmetic
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_FLAGS = ("-march=native", "-ffp-contract=fast")
_TILES = ((4, 4, 16), (4, 2, 8), (3, 4, 8), (2, 2, 16), (6, 4, 16), (2, 2, 4))
"""Sizes of tiles, as (rows, columns, elements in a vector)."""


@extension_move("reassociates", phase=32, weight=2.0)
def switch_to_mma_or_wgmma(cpp: str) -> Iterator[ChangedText]:
    """Compute a tile of dot products by vector multiply-adds, with partial sums a lane.

    Yields every size of tile for each nest that is recognised.
    """
    for function, rows in each_loop(cpp):
        found = _nest(function, rows)
        if found is None:
            continue
        for tile in _TILES:
            changed = replaced(cpp, [(rows.node, _tile(function, rows, found, tile))])
            yield ChangedText(rows.name, " x ".join(map(str, tile)), changed, flags=_FLAGS)


def _nest(function: CppFunction, rows: CppLoop) -> Accumulation | None:
    """Return the dot products of a loop nest if they can be computed in tiles; or None."""
    found = read_nest(function, rows)
    if found is None:
        return None
    i, j, k = rows.variable, found.elements.variable, found.terms.variable
    if j in found.terms.lower.names | found.terms.upper.names:
        return None
    kind, known = found.total.type, {name: "int" for name in (i, j, k)}
    term = found.add.value
    elements = [each for each in walk(term) if each.type == "subscript_expression"]
    moving = any(function.stride(each, k) == 1 for each in elements)
    return found if moving and is_arithmetic(function, term, k, kind, known) else None


def _tile(
    function: CppFunction, rows: CppLoop, found: Accumulation, tile: tuple[int, int, int]
) -> str:
    """Return the text of a loop nest in tiles; elements beyond them are computed as before."""
    names = names_in_tiles(function, rows, found)

    def many(node: Node) -> str | None:
        """Return the text of a vector of an element's values at neighbouring terms."""
        moves = node.type == "subscript_expression"
        if moves and function.stride(node, found.terms.variable) == 1:
            return f"*(const {names['vector']}*)&{text_of(node)}"
        return None

    return in_tiles(
        "switch_to_mma_or_wgmma.cpp.j2",
        rows,
        found,
        tile,
        step=1,
        term=rewritten(found.add.value, many),
        single=text_of(found.add.value),
        begin=text_of(found.total.value),
        **names,
    )
