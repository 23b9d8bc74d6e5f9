"""`switch_to_mma_or_wgmma`: a tile of dot products runs on the machine's multiply-add units.

A CPU's counterpart to a GPU's matrix instructions. For a nest of two loops over elements around a
loop over terms, whose operands lie next to each other along the terms. Each sum is kept in a vector
of partial sums, and those are added up at the end, so that sums are taken in another order. Vectors
are the compiler's own (``vector_size``), as for `register_block`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.accumulation import Accumulation, read_accumulation
from kernelgym_train.mcgs.cpp.editing import indent_of, replaced, rewritten
from kernelgym_train.mcgs.cpp.loops import Function, Loop, read_functions, walk_loops
from kernelgym_train.mcgs.cpp.proofs import has_independent_iterations
from kernelgym_train.mcgs.cpp.syntax import identifiers, text_of, walk
from kernelgym_train.mcgs.cpp.vectors import BYTES, fresh, is_arithmetic, stride_along
from kernelgym_train.mcgs.moves.definition import Move, Realisation, with_flag
from kernelgym_train.mcgs.variant import Variant

__all__ = ["SWITCH_TO_MMA_OR_WGMMA"]

_TILES = ((4, 4, 16), (4, 2, 8), (3, 4, 8), (2, 2, 16), (6, 4, 16), (2, 2, 4))
"""(rows, columns, elements a vector)."""


def _realise(variant: Variant) -> Iterator[Realisation]:
    """Yield every tile for each nest that is recognised."""
    file = variant.file
    for function in read_functions(file.cpp):
        for rows in walk_loops(function.loops):
            found = _nest(function, rows)
            if found is None:
                continue
            for height, width, lanes in _TILES:
                text = _tile(function, rows, found, height, width, lanes)
                cpp = replaced(file.cpp, [(rows.node, text)])
                changed = dataclasses.replace(variant, source=file.with_cpp(cpp).source)
                changed = with_flag(changed, "-march=native", "-ffp-contract=fast")
                choice = f"{height} x {width} x {lanes}"
                yield Realisation(rows.name, choice, changed, "reassociates")


def _nest(function: Function, rows: Loop) -> Accumulation | None:
    """Return the dot products that tiles of rows can compute, or None."""
    if len(rows.body) != 1 or rows.step != 1 or any("collapse" in each for each in rows.pragmas):
        return None
    (columns,) = rows.body
    if not isinstance(columns, Loop) or columns.pragmas:
        return None
    found = read_accumulation(function, columns)
    if found is None or found.total.type not in BYTES:
        return None
    i, j, k = rows.variable, columns.variable, found.terms.variable
    if i in columns.lower.names | columns.upper.names:
        return None
    if {i, j} & (found.terms.lower.names | found.terms.upper.names):
        return None
    if not has_independent_iterations(function, rows):
        return None
    kind, known = found.total.type, {name: "int" for name in (i, j, k)}
    term = found.add.value
    elements = [each for each in walk(term) if each.type == "subscript_expression"]
    moving = any(stride_along(each, k) == 1 for each in elements)
    return found if moving and is_arithmetic(function, term, k, kind, known) else None


def _tile(
    function: Function, rows: Loop, found: Accumulation, height: int, width: int, lanes: int
) -> str:
    """Return the nest in tiles, its edges as they were."""
    i, j, k = rows.variable, found.elements.variable, found.terms.variable
    kind, name, terms, elements = found.total.type, found.total.name, found.terms, found.elements
    taken = {*identifiers(rows.node), *function.arrays, *function.types}
    row, column, row_at, column_at, vector, tile, lane, done = (
        fresh(wanted, taken)
        for wanted in (f"{i}_0", f"{j}_0", "r", "v", "vector_t", "tile", "lane", f"{k}_done")
    )

    def many(node: Node) -> str | None:
        """Return a vector for an element that differs from term to term."""
        if node.type == "subscript_expression" and stride_along(node, k) == 1:
            return f"*(const {vector}*)&{text_of(node)}"
        return None

    def for_each_sum(pad: str, statements: list[str]) -> list[str]:
        return [
            f"{pad}#pragma GCC unroll {height}",
            f"{pad}for (int {row_at} = 0; {row_at} < {height}; ++{row_at}) {{",
            f"{pad}  #pragma GCC unroll {width}",
            f"{pad}  for (int {column_at} = 0; {column_at} < {width}; ++{column_at}) {{",
            f"{pad}    const {rows.type} {i} = {row} + {row_at};",
            f"{pad}    const {elements.type} {j} = {column} + {column_at};",
            f"{pad}    (void){i}, (void){j};",
            *(f"{pad}    {each}" for each in statements),
            f"{pad}  }}",
            f"{pad}}}",
        ]

    here = f"{tile}[{row_at}][{column_at}]"
    add = f"{here} {found.add.operator} {rewritten(found.add.value, many)};"
    finish = [
        f"{kind} {name} = {text_of(found.total.value)};",
        f"for (int {lane} = 0; {lane} < {lanes}; ++{lane}) {name} += {here}[{lane}];",
        f"for ({terms.type} {k} = {done}; {k} < {terms.upper_text}; ++{k}) "
        f"{name} {found.add.operator} {text_of(found.add.value)};",
        text_of(found.store.node),
    ]
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
        f"      {vector} {tile}[{height}][{width}] = {{}};",
        f"      {terms.type} {done} = {terms.lower_text};",
        f"      for (; {done} + {lanes} <= {terms.upper_text}; {done} += {lanes}) {{",
        f"        const {terms.type} {k} = {done};",
        *for_each_sum("        ", [add]),
        "      }",
        *for_each_sum("      ", finish),
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


SWITCH_TO_MMA_OR_WGMMA = Move(
    "switch_to_mma_or_wgmma",
    ("cpp",),
    "reassociates",
    32,
    2.0,
    "Compute a tile of dot products by vector multiply-adds, with partial sums a lane.",
    _realise,
    knob="choice",
)
