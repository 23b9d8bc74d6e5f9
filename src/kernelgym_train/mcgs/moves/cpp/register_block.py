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
from kernelgym_train.mcgs.cpp.tiling import Tiles, read_nest
from kernelgym_train.mcgs.cpp.vectors import is_arithmetic
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_TILES = ((4, 2, 4), (4, 2, 8), (6, 2, 8), (8, 2, 16), (4, 3, 8), (12, 2, 16), (4, 4, 16))
"""Tiles: (rows, vectors a row, elements a vector)."""


@extension_move("exact", phase=31, weight=3.0)
def register_block(cpp: str) -> Iterator[ChangedText]:
    """Keep a tile of sums in vector registers while the loop over terms runs.

    Yields every size of tile for each nest that is recognised.
    """
    for function, rows in each_loop(cpp):
        found = _nest(function, rows)
        if found is None:
            continue
        for height, vectors, lanes in _TILES:
            text = _tile(function, rows, found, height, vectors, lanes)
            changed = replaced(cpp, [(rows.node, text)])
            yield ChangedText(rows.name, f"{height} x {vectors} x {lanes}", changed)


def _nest(function: CppFunction, rows: CppLoop) -> Accumulation | None:
    """Return the sums that tiles can compute, or None."""
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
    function: CppFunction, rows: CppLoop, found: Accumulation, height: int, vectors: int, lanes: int
) -> str:
    """Return the text of the nest in tiles, with its edges computed as before."""
    tiles = Tiles(function, rows, found, height, vectors, lanes, step=lanes)
    i, j, kind = rows.variable, found.elements.variable, found.total.type
    name, terms, here = found.total.name, found.terms, tiles.here
    vector, lane = tiles.vector, tiles.lane

    def many(node: Node) -> str | None:
        """Return a vector for an element that differs from column to column."""
        if node.type == "subscript_expression" and function.stride(node, j) == 1:
            return f"*(const {vector}*)&{text_of(node)}"
        if node.type == "identifier" and text_of(node) == name:
            return here
        return None

    # Subtracting zero keeps the sign of a zero.
    start = f"({rewritten(found.total.value, many)}) - {vector}{{}}"
    add = f"{here} {found.add.operator} {rewritten(found.add.value, many)};"
    known = {each: "int" for each in (i, j, terms.variable)} | {name: kind}
    if is_arithmetic(function, found.store.value, j, kind, known):
        value = rewritten(found.store.value, many)
        store = f"*({vector}*)&{text_of(found.store.target)} = {value};"
    else:  # a function of the sum is called for each element
        at = f"{tiles.column} + {tiles.column_at} * {lanes} + {lane}"
        store = (
            f"for (int {lane} = 0; {lane} < {lanes}; ++{lane}) {{ "
            f"const {found.elements.type} {j} = {at}; "
            f"const {kind} {name} = {here}[{lane}]; {text_of(found.store.node)} }}"
        )
    return tiles.text(
        [
            f"      {vector} {tiles.tile}{tiles.shape};",
            *tiles.each_sum("      ", [f"{here} = {start};"]),
            f"      for ({terms.type} {terms.variable} = {terms.lower_text}; "
            f"{terms.variable} < {terms.upper_text}; ++{terms.variable}) {{",
            *tiles.each_sum("        ", [add]),
            "      }",
            *tiles.each_sum("      ", [store]),
        ]
    )
