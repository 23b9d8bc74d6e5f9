"""`in_tiles`: writes a nest of loops around a sum in tiles of vectors.

Contract: `read_nest` recognises a nest whose rows can be computed in any order; `in_tiles` writes
the nest tile by tile, and computes the elements beyond the last whole tile as before. A template of
the caller has the computation within a tile, and the order in which terms are added.
"""

from __future__ import annotations

import re

from kernelgym_train.mcgs.cpp.accumulation import Accumulation, read_accumulation
from kernelgym_train.mcgs.cpp.editing import indent_of
from kernelgym_train.mcgs.cpp.forms import CppFunction, CppLoop, only_inner
from kernelgym_train.mcgs.cpp.proofs import has_independent_iterations
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.cpp.vectors import BYTES, fresh
from kernelgym_train.mcgs.templates import filled


def read_nest(function: CppFunction, rows: CppLoop) -> Accumulation | None:
    """Return the sums that a loop over rows computes, if they can be computed in tiles; or None.

    None unless the bounds of columns and terms are independent of the row.
    """
    columns = only_inner(rows)
    if columns is None or rows.step != 1 or any("collapse" in each for each in rows.pragmas):
        return None
    found = read_accumulation(function, columns)
    if found is None or found.total.type not in BYTES:
        return None
    if rows.variable in columns.bounds | found.terms.bounds or not has_independent_iterations(
        function, rows
    ):
        return None
    return found


def names_in_tiles(function: CppFunction, rows: CppLoop, found: Accumulation) -> dict[str, str]:
    """Return names that the nest does not use, keyed by their names in ``tiles.cpp.j2``.

    ``here`` is the text of the current sum.
    """
    taken = function.names(rows)
    wanted = {"row": f"{rows.variable}_0", "column": f"{found.elements.variable}_0", "r": "r"}
    wanted |= {"v": "v", "vector": "vector_t", "tile": "tile", "lane": "lane"}
    wanted["done"] = f"{found.terms.variable}_done"
    names = {meaning: fresh(name, taken) for meaning, name in wanted.items()}
    return names | {"here": f"{names['tile']}[{names['r']}][{names['v']}]"}


def in_tiles(
    template: str,
    rows: CppLoop,
    found: Accumulation,
    size: tuple[int, int, int],
    *,
    step: int,
    **values: object,
) -> str:
    """Return the C++ text of a nest of loops in tiles.

    Args:
        template: Name of the template of the computation within a tile.
        rows: The nest's outer loop.
        found: Result of `read_nest`.
        size: Number of rows of a tile, number of sums in a row, each of them a vector, and number
            of elements of a vector.
        step: Number of columns from one sum of a row to the next.
        values: Further values of the template, those of `names_in_tiles` among them.
    """
    height, across, lanes = size
    elements, kind = found.elements, found.total.type
    text = filled(
        template,
        **{"rows": rows, "found": found, "elements": elements, "terms": found.terms, "kind": kind},
        **{"i": rows.variable, "j": elements.variable, "k": found.terms.variable},
        **{"height": height, "across": across, "lanes": lanes, "step": step},
        width=across * step,
        bytes=BYTES[kind],
        body=re.sub(f"\n {{0,{elements.column}}}", "\n", text_of(elements.body_node)),
        store=text_of(found.store.node),
        **values,
    )
    return indent_of(text.strip(), rows.column)
