"""Finds data races between the programs of one interpreted launch.

The interpreter runs the programs of a launch one after the other, so a program may read what an
earlier one wrote. On a GPU they run in any order, and at once. While a launch runs, this file keeps
the last program that stored to each place. It is a race if another program

- loads that place, other than by an atomic operation, or
- stores another value there, other than by an atomic operation,

unless it carried out an atomic operation before: kernels with locks and counters order their
programs so.

Not covered: loads of what a later program stores (reading before writing, in place); lanes of one
program that read other lanes' stores without a barrier; pointers of one access that lead into
several tensors; whether an atomic operation does order the programs.

Loaded by path in the untrusted process: standard library, numpy and triton only. Like
`bounds_check.py`, it serves honest kernels and is no security boundary.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DataRaceError", "Races"]


class DataRaceError(RuntimeError):
    """Programs of one launch depend on the order in which they run."""


class Races:
    """Keeps which program stored what; without effect until switched on."""

    def __init__(self) -> None:
        self.on = False
        """Whether races are looked for."""
        self._stored: dict[int, tuple[Any, int]] = {}
        self._ordered = -1

    def begin(self) -> tuple[dict[int, tuple[Any, int]], int]:
        """Begin a launch; return the state of the interrupted one."""
        before = self._stored, self._ordered
        self._stored, self._ordered = {}, -1
        return before

    def end(self, before: tuple[dict[int, tuple[Any, int]], int]) -> None:
        """Go on with the launch that was interrupted."""
        self._stored, self._ordered = before

    def access(
        self, kind: str, builder: Any, addresses: Any, span: tuple[int, int, str], size: int,
        values: Any = None,
    ) -> None:  # fmt: skip
        """Note one access of a program; `values` are those of a store.

        Args:
            kind: ``load``, ``store`` or ``atomic``.
            builder: The interpreter's builder, which knows the program.
            addresses: Of the active lanes, all in one tensor.
            span: Start, end and name of that tensor's memory.
            size: Bytes of an element.
            values: Bytes to store, one row an active lane.

        Raises:
            DataRaceError: If the order of the programs matters.
        """
        start, end, name = span
        kept = self._stored.get(start)
        if kept is None and kind == "load":
            return
        import numpy as np

        program = _number(builder)
        if kept is None:
            kept = np.full(-(-(end - start) // size), -1, dtype=np.int32), size
            self._stored[start] = kept
        owners, unit = kept
        places = (addresses - np.uint64(start)) // np.uint64(unit)
        if kind == "atomic":
            self._ordered = program
        elif self._ordered != program:
            owner = owners[places]
            foreign = (owner >= 0) & (owner != program)
            if foreign.any():
                self._refuse_unless_same(kind, addresses, values, foreign, owner, builder, name)
        if kind != "load":
            owners[places] = program

    def _refuse_unless_same(
        self,
        kind: str,
        addresses: Any,
        values: Any,
        foreign: Any,
        owner: Any,
        builder: Any,
        name: str,
    ) -> None:
        import numpy as np

        if kind == "store" and values is not None:
            there = _read(addresses[foreign], values.dtype)
            differs = there.view(f"u{values.itemsize}") != values[foreign].view(
                f"u{values.itemsize}"
            )
            if not differs.any():
                return
            first = int(np.flatnonzero(foreign)[int(np.argmax(differs))])
        else:
            first = int(np.argmax(foreign))
        dims = builder.grid_dim
        other = np.unravel_index(int(owner[first]), dims)
        verb = "loads" if kind == "load" else "overwrites"
        raise DataRaceError(
            f"program {tuple(builder.grid_idx)} {verb} what program {tuple(map(int, other))} of "
            f"the same launch stored in {name!r}; programs run in any order on a GPU, and at the "
            "same time: let each program store to places of its own, use a second launch, or "
            "atomic operations"
        )


def _number(builder: Any) -> int:
    (x, y, z), (_, rows, columns) = builder.grid_idx, builder.grid_dim
    return int((x * rows + y) * columns + z)


def _read(addresses: Any, kind: Any) -> Any:
    import numpy as np
    from triton._C.libtriton import interpreter

    on = np.ones(addresses.shape, dtype=bool)
    return interpreter.load(addresses, on, np.zeros(addresses.shape, dtype=kind), kind)
