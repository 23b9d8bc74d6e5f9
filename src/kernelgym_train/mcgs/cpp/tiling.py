"""`Tiles`: writes a nest of loops around a sum in tiles of vectors.

Contract: `read_nest` recognises a nest whose rows can be computed in any order; `Tiles` writes the
nest tile by tile, and computes the elements beyond the last whole tile as before. The caller writes
the computation within a tile, and the order in which terms are added.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelgym_train.mcgs.cpp.accumulation import Accumulation, read_accumulation
from kernelgym_train.mcgs.cpp.editing import for_head, indent_of, lines_at
from kernelgym_train.mcgs.cpp.forms import CppFunction, CppLoop, only_inner
from kernelgym_train.mcgs.cpp.proofs import has_independent_iterations
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.cpp.vectors import BYTES, fresh


def read_nest(function: CppFunction, rows: CppLoop) -> Accumulation | None:
    """Return the sums that a loop over rows computes, or None.

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


class Tiles:
    """The text of a nest in tiles.

    Args:
        function: The function that the nest is in.
        rows: The nest's outer loop.
        found: Result of `read_nest`.
        height: Number of rows of a tile.
        across: Number of sums in a row of a tile, each of them a vector.
        lanes: Number of elements of a vector.
        step: Number of columns from one sum of a row to the next.
    """

    def __init__(
        self,
        function: CppFunction,
        rows: CppLoop,
        found: Accumulation,
        height: int,
        across: int,
        lanes: int,
        *,
        step: int,
    ) -> None:
        self._rows, self._found = rows, found
        self._height, self._across, self._lanes, self._step = height, across, lanes, step
        self._taken = function.names(rows)
        i, j = rows.variable, found.elements.variable
        self._row, self.column = self.fresh(f"{i}_0"), self.fresh(f"{j}_0")
        self._row_at, self.column_at = self.fresh("r"), self.fresh("v")
        self.vector, self.tile, self.lane = map(self.fresh, ("vector_t", "tile", "lane"))

    @property
    def here(self) -> str:
        """Text of the current sum, for statements in `each_sum`."""
        return f"{self.tile}[{self._row_at}][{self.column_at}]"

    @property
    def shape(self) -> str:
        """Text of the tile's extents in a declaration."""
        return f"[{self._height}][{self._across}]"

    def fresh(self, wanted: str) -> str:
        """Return a name that the nest does not use, and reserve it."""
        return fresh(wanted, self._taken)

    def each_sum(self, pad: str, statements: Sequence[str]) -> list[str]:
        """Return lines that execute statements for each sum of a tile."""
        i, j = self._rows.variable, self._found.elements.variable
        at = self.column_at if self._step == 1 else f"{self.column_at} * {self._step}"
        return [
            f"{pad}#pragma GCC unroll {self._height}",
            f"{pad}{for_head('int', self._row_at, '0', str(self._height))} {{",
            f"{pad}  #pragma GCC unroll {self._across}",
            f"{pad}  {for_head('int', self.column_at, '0', str(self._across))} {{",
            f"{pad}    const {self._rows.type} {i} = {self._row} + {self._row_at};",
            f"{pad}    const {self._found.elements.type} {j} = {self.column} + {at};",
            f"{pad}    (void){i}, (void){j};",
            *(f"{pad}    {each}" for each in statements),
            f"{pad}  }}",
            f"{pad}}}",
        ]

    def text(self, inside: Sequence[str]) -> str:
        """Return the text of the nest, with `inside` as the body for each whole tile.

        Args:
            inside: Lines, indented by six.
        """
        rows, elements, kind = self._rows, self._found.elements, self._found.total.type
        i, j, row, column = rows.variable, elements.variable, self._row, self.column
        height, width = self._height, self._across * self._step
        body = indent_of(text_of(elements.body_node), rows.column + 8 - elements.column)
        columns = for_head(
            elements.wide_type, column, elements.lower_text, elements.upper_text, width
        )
        lines = [
            f"{for_head(rows.wide_type, row, rows.lower_text, rows.upper_text, height)} {{",
            f"  typedef {kind} {self.vector} __attribute__((vector_size("
            f"{self._lanes * BYTES[kind]}), aligned({BYTES[kind]}), may_alias));",
            f"  {columns} {{",
            f"    if ({row} + {height} <= {rows.upper_text} && "
            f"{column} + {width} <= {elements.upper_text}) {{",
            *inside,
            "    } else {",
            f"      for ({rows.type} {i} = {row}; {i} < {row} + {height} && "
            f"{i} < {rows.upper_text}; ++{i}) {{",
            f"        for ({elements.type} {j} = {column}; {j} < {column} + {width} && "
            f"{j} < {elements.upper_text}; ++{j}) {body}",
            "      }",
            "    }",
            "  }",
            "}",
        ]
        return lines_at(rows.column, lines)
