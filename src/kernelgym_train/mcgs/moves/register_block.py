"""`register_block`: a tile of sums is kept in vector registers.

For a nest of two loops over elements around a loop over terms, such as a matrix product. Each
element's sum keeps its order. Sums may start from elements of an input, and what is stored may call
functions of a sum. Vectors are the compiler's own (``vector_size``), so that a width
that the machine lacks is slower and not wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.accumulation import Accumulation, read_accumulation
from kernelgym_train.mcgs.cpp.editing import indent_of, replaced, rewritten
from kernelgym_train.mcgs.cpp.loops import Function, Loop, read_functions, walk_loops
from kernelgym_train.mcgs.cpp.proofs import has_independent_iterations
from kernelgym_train.mcgs.cpp.syntax import identifiers, text_of
from kernelgym_train.mcgs.cpp.vectors import BYTES, fresh, is_arithmetic, stride_along
from kernelgym_train.mcgs.moves.definition import Move, Realisation
from kernelgym_train.mcgs.variant import Variant

__all__ = ["REGISTER_BLOCK"]

_TILES = ((4, 2, 4), (4, 2, 8), (6, 2, 8), (8, 2, 16), (4, 3, 8), (12, 2, 16), (4, 4, 16))
"""(rows, vectors a row, elements a vector)."""


def _realise(variant: Variant) -> Iterator[Realisation]:
    """Yield every tile for each nest that is recognised."""
    file = variant.file
    for function in read_functions(file.cpp):
        for rows in walk_loops(function.loops):
            found = _nest(function, rows)
            if found is None:
                continue
            for height, vectors, lanes in _TILES:
                text = _tile(function, rows, found, height, vectors, lanes)
                cpp = replaced(file.cpp, [(rows.node, text)])
                changed = dataclasses.replace(variant, source=file.with_cpp(cpp).source)
                yield Realisation(rows.name, f"{height} x {vectors} x {lanes}", changed)


def _nest(function: Function, rows: Loop) -> Accumulation | None:
    """Return the accumulation that tiles of rows can compute, or None."""
    if len(rows.body) != 1 or rows.step != 1 or any("collapse" in each for each in rows.pragmas):
        return None
    (columns,) = rows.body
    if not isinstance(columns, Loop) or columns.pragmas:
        return None
    found = read_accumulation(function, columns)
    if found is None or found.total.type not in BYTES:
        return None
    i, j, k = rows.variable, columns.variable, found.terms.variable
    if i in columns.lower.names | columns.upper.names | found.terms.lower.names:
        return None
    if i in found.terms.upper.names:
        return None
    if found.total.name not in identifiers(found.store.value):
        return None
    if not has_independent_iterations(function, rows):
        return None
    kind = found.total.type
    known = {name: "int" for name in (i, j, k)} | {found.total.name: kind}
    if not is_arithmetic(function, found.add.value, j, kind, known):
        return None
    begin = found.total.value
    if {i, j} & identifiers(begin) and not is_arithmetic(function, begin, j, kind, known):
        return None
    return found if stride_along(found.store.target, j) == 1 else None


def _tile(
    function: Function, rows: Loop, found: Accumulation, height: int, vectors: int, lanes: int
) -> str:
    """Return the nest in tiles, its edges as they were."""
    i, j, kind = rows.variable, found.elements.variable, found.total.type
    name, width = found.total.name, vectors * lanes
    taken = {*identifiers(rows.node), *function.arrays, *function.types}
    row, column, row_at, column_at, vector, tile, lane = (
        fresh(wanted, taken)
        for wanted in (f"{i}_0", f"{j}_0", "r", "v", "vector_t", "tile", "lane")
    )

    def many(node: Node) -> str | None:
        """Return a vector for an element that differs from column to column."""
        if node.type == "subscript_expression" and stride_along(node, j) == 1:
            return f"*(const {vector}*)&{text_of(node)}"
        if node.type == "identifier" and text_of(node) == name:
            return f"{tile}[{row_at}][{column_at}]"
        return None

    def for_each_vector(pad: str, statement: str) -> list[str]:
        return [
            f"{pad}#pragma GCC unroll {height}",
            f"{pad}for (int {row_at} = 0; {row_at} < {height}; ++{row_at}) {{",
            f"{pad}  #pragma GCC unroll {vectors}",
            f"{pad}  for (int {column_at} = 0; {column_at} < {vectors}; ++{column_at}) {{",
            f"{pad}    const {rows.type} {i} = {row} + {row_at};",
            f"{pad}    const {found.elements.type} {j} = {column} + {column_at} * {lanes};",
            f"{pad}    (void){i}, (void){j};",
            f"{pad}    {statement}",
            f"{pad}  }}",
            f"{pad}}}",
        ]

    here = f"{tile}[{row_at}][{column_at}]"
    # Minus zero keeps the sign of zero.
    start = f"({rewritten(found.total.value, many)}) - {vector}{{}}"
    add = f"{here} {found.add.operator} {rewritten(found.add.value, many)};"
    known = {each: "int" for each in (i, j, found.terms.variable)} | {name: kind}
    if is_arithmetic(function, found.store.value, j, kind, known):
        value = rewritten(found.store.value, many)
        store = f"*({vector}*)&{text_of(found.store.target)} = {value};"
    else:  # a function of a sum is called for each
        store = (
            f"for (int {lane} = 0; {lane} < {lanes}; ++{lane}) {{ "
            f"const {found.elements.type} {j} = {column} + {column_at} * {lanes} + {lane}; "
            f"const {kind} {name} = {here}[{lane}]; {text_of(found.store.node)} }}"
        )
    terms, elements = found.terms, found.elements
    deeper = rows.node.start_point.column + 8 - elements.node.start_point.column
    body = indent_of(text_of(elements.node.child_by_field_name("body")), deeper)
    lines = [
        f"for ({rows.type} {row} = {rows.lower_text}; {row} < {rows.upper_text}; "
        f"{row} += {height}) {{",
        f"  typedef {kind} {vector} __attribute__((vector_size({lanes * BYTES[kind]}), "
        f"aligned({BYTES[kind]}), may_alias));",
        f"  for ({elements.type} {column} = {elements.lower_text}; "
        f"{column} < {elements.upper_text}; {column} += {width}) {{",
        f"    if ({row} + {height} <= {rows.upper_text} && "
        f"{column} + {width} <= {elements.upper_text}) {{",
        f"      {vector} {tile}[{height}][{vectors}];",
        *for_each_vector("      ", f"{here} = {start};"),
        f"      for ({terms.type} {terms.variable} = {terms.lower_text}; "
        f"{terms.variable} < {terms.upper_text}; ++{terms.variable}) {{",
        *for_each_vector("        ", add),
        "      }",
        *for_each_vector("      ", store),
        "    } else {",
        f"      for ({rows.type} {i} = {row}; {i} < {row} + {height} && {i} < {rows.upper_text}; "
        f"++{i}) {{",
        f"        for ({elements.type} {j} = {column}; {j} < {column} + {width} && "
        f"{j} < {elements.upper_text}; ++{j}) {body}",
        "      }",
        "    }",
        "  }",
        "}",
    ]
    return ("\n" + " " * rows.node.start_point.column).join(lines)


REGISTER_BLOCK = Move(
    "register_block",
    ("cpp",),
    "exact",
    31,
    3.0,
    "Keep a tile of sums in vector registers while the loop over terms runs.",
    _realise,
    knob="choice",
)
