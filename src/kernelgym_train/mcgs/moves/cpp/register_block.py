"""`register_block`: keeps a tile of sums in vector registers.

Applies to two loops over elements around a loop over terms, such as a matrix product. Each
element's sum keeps its order. Sums may start from elements of an input, and the stored value may be
a function of the sum. Vectors use the compiler's ``vector_size``, so that a width that the machine
lacks is slower, but not wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.accumulation import Accumulation
from kernelgym_train.mcgs.cpp.editing import replaced, rewritten
from kernelgym_train.mcgs.cpp.forms import CppFunction, CppLoop
from kernelgym_train.mcgs.cpp.loops import each_loop
from kernelgym_train.mcgs.cpp.syntax import identifiers, text_of
from kernelgym_train.mcgs.cpp.tiling import in_tiles, names_in_tiles, read_nest
from kernelgym_train.mcgs.cpp.vectors import is_arithmetic
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_TILES = ((4, 2, 4), (4, 2, 8), (6, 2, 8), (8, 2, 16), (4, 3, 8), (12, 2, 16), (4, 4, 16))
"""Sizes of tiles, as (rows, vectors in a row, elements in a vector)."""


@extension_move("exact", phase=31, weight=3.0)
def register_block(cpp: str) -> Iterator[ChangedText]:
    """Keep a tile of sums in vector registers while the loop over terms runs.

    Yields every size of tile for each nest that is recognised.
    """
    for function, rows in each_loop(cpp):
        found = _nest(function, rows)
        if found is None:
            continue
        for tile in _TILES:
            changed = replaced(cpp, [(rows.node, _tile(function, rows, found, tile))])
            yield ChangedText(rows.name, " x ".join(map(str, tile)), changed)


def _nest(function: CppFunction, rows: CppLoop) -> Accumulation | None:
    """Return the sums of a loop nest if they can be computed in tiles of registers; or None."""
    found = read_nest(function, rows)
    if found is None or found.total.name not in identifiers(found.store.value):
        return None
    i, j, k = rows.variable, found.elements.variable, found.terms.variable
    kind = found.total.type
    known = {name: "int" for name in (i, j, k)} | {found.total.name: kind}
    if not is_arithmetic(function, found.add.value, j, kind, known):
        return None
    begin = found.total.value
    if {i, j} & identifiers(begin) and not is_arithmetic(function, begin, j, kind, known):
        return None
    return found if function.stride(found.store.target, j) == 1 else None


def _tile(
    function: CppFunction, rows: CppLoop, found: Accumulation, tile: tuple[int, int, int]
) -> str:
    """Return the text of a loop nest in tiles; elements beyond them are computed as before."""
    names = names_in_tiles(function, rows, found)
    j, kind, total = found.elements.variable, found.total.type, found.total.name
    vector, here = names["vector"], names["here"]

    def many(node: Node) -> str | None:
        """Return the text of a vector of an element's values in neighbouring columns."""
        if node.type == "subscript_expression" and function.stride(node, j) == 1:
            return f"*(const {vector}*)&{text_of(node)}"
        return here if node.type == "identifier" and text_of(node) == total else None

    known = dict.fromkeys((rows.variable, j, found.terms.variable), "int") | {total: kind}
    in_vectors = is_arithmetic(function, found.store.value, j, kind, known)
    return in_tiles(
        "register_block.cpp.j2",
        rows,
        found,
        tile,
        step=tile[2],
        start=rewritten(found.total.value, many),
        term=rewritten(found.add.value, many),
        target=text_of(found.store.target),
        stored=rewritten(found.store.value, many) if in_vectors else "",
        **names,
    )
