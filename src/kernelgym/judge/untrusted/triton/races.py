"""Finds data races between the programs of one interpreted launch.

The interpreter runs the programs of a launch one after the other, so a program may read what an
earlier one wrote. On a GPU they run in any order, and at once. A function's first launch runs its
programs in the interpreter's order. Later ones run them in an order drawn from the call's seed, so
that reading a place before another program writes to it shows, too; not so for functions that carry
out atomic operations, which may count on programs that began before. While a launch runs, this file
keeps the last program that stored to each place. It is a race if another program

- loads that place, other than by an atomic operation, or
- stores another value there, other than by an atomic operation,

unless it carried out an atomic operation before, and the one that stored carried out one after:
kernels with locks and counters order their programs so.

Not covered: reading before writing in a kernel that is launched once or is atomic; lanes of one
program that read other lanes' stores without a barrier; pointers of one access that lead into
several tensors; whether atomic operations do order the programs.

Loaded by path in the untrusted process: standard library, numpy and triton only. Like
`bounds_check.py`, it serves honest kernels and is no security boundary.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any


class DataRaceError(RuntimeError):
    """Programs of one launch depend on the order in which they run."""


class _Launch:
    """State of one interpreted launch, in the search for data races.

    Args:
        function: Name and line of its function.
    """

    def __init__(self, function: tuple[str, int]) -> None:
        self.function = function
        self.order: list[int] | None = None
        """Numbers of the programs in the order in which they run; None for the usual one."""
        self.stored: dict[int, tuple[Any, int]] = {}
        """The program that stored to each place last, and the bytes of a place, by tensor."""
        self.ordered = -1
        """The last program that carried out an atomic operation."""
        self.atomic: set[int] = set()
        """All programs that did."""
        self._fresh: list[tuple[int, Any]] = []  # stored by `ordered` since its last one
        self._late: dict[int, Any] = {}  # like `stored`, of stores that no atomic followed

    def note_atomic(self, program: int) -> None:
        """Record an atomic operation: stores that the program made before it are published."""
        if self.ordered != program:
            for start, places in self._fresh:
                owners = self.stored[start][0]
                self._late.setdefault(start, owners * 0 - 1)[places] = self.ordered
        self._fresh = []
        self.ordered = program
        self.atomic.add(program)

    def note_store(self, program: int, start: int, places: Any) -> None:
        """Record a store of a program that has carried out an atomic operation."""
        if self.ordered == program:
            self._fresh.append((start, places))

    def unordered(self, program: int, start: int, places: Any, owners: Any) -> Any:
        """Return which places no atomic operation orders between last writer and program."""
        if self.ordered != program:
            return owners >= 0
        late = self._late.get(start)
        apart = owners < 0 if late is None else late[places] == owners
        return apart | [owner not in self.atomic for owner in owners.tolist()]


class Races:
    """Finds data races by the program that last stored to each place; off until switched on."""

    def __init__(self) -> None:
        self.on = False
        """Whether races are looked for."""
        self.before_launch: Callable[[], None] = lambda: None
        """Called before every launch; what it raises ends the launch."""
        self._launches = 0
        self._launch = _Launch(("", 0))
        self._atomic: dict[tuple[str, int], bool] = {}
        """Whether a function carried out an atomic operation, by its name and line."""

    def shuffle(self, builder: Any) -> None:
        """Make launches run their programs in an order that this object draws.

        Args:
            builder: The class of the interpreter's builder.
        """
        dim, index = builder.set_grid_dim, builder.set_grid_idx

        def set_grid_dim(this: Any, *sizes: int) -> None:
            dim(this, *sizes)
            launch, self._launch.order = self._launch, None
            if self.on and self._atomic.get(launch.function) is False:
                launch.order = _drawn(math.prod(sizes), self._launches)

        def set_grid_idx(this: Any, x: int, y: int, z: int) -> None:
            if (order := self._launch.order) is not None:
                _, rows, columns = this.grid_dim
                rest, z = divmod(order[(x * rows + y) * columns + z], columns)
                x, y = divmod(rest, rows)
            index(this, x, y, z)

        builder.set_grid_dim, builder.set_grid_idx = set_grid_dim, set_grid_idx

    def begin(self, function: Any) -> _Launch:
        """Begin a launch; return the state of the launch that it interrupts."""
        self.before_launch()
        code, before = getattr(function, "__code__", None), self._launch
        line = 0 if code is None else code.co_firstlineno
        self._launch = _Launch((getattr(function, "__name__", ""), line))
        self._launches += 1
        return before

    def end(self, before: _Launch) -> None:
        """Continue the launch that was interrupted by a nested one."""
        known = self._atomic.get(self._launch.function, False)
        self._atomic[self._launch.function] = known or self._launch.ordered >= 0
        self._launch = before

    def access(
        self, kind: str, builder: Any, addresses: Any, span: tuple[int, int, str], size: int,
        values: Any = None,
    ) -> None:  # fmt: skip
        """Record one access of a program and check it for a race; `values` are those of a store.

        Args:
            kind: ``load``, ``store`` or ``atomic``.
            builder: The interpreter's builder, which knows the program.
            addresses: Addresses of the active lanes, all in one tensor.
            span: Start, end and name of that tensor's memory.
            size: Bytes of an element.
            values: Bytes to store, one row an active lane.

        Raises:
            DataRaceError: If the order of the programs matters.
        """
        start, end, name = span
        launch = self._launch
        kept = launch.stored.get(start)
        if kept is None and kind == "load":
            return
        import numpy as np

        program = _number(builder)
        if kept is None:
            kept = np.full(-(-(end - start) // size), -1, dtype=np.int32), size
            launch.stored[start] = kept
        owners, unit = kept
        places = (addresses - np.uint64(start)) // np.uint64(unit)
        if kind == "atomic":
            launch.note_atomic(program)
        else:
            owner = owners[places]
            foreign = (owner >= 0) & (owner != program)
            if foreign.any():
                foreign &= launch.unordered(program, start, places, owner)
            if foreign.any():
                self._refuse_unless_same(kind, addresses, values, foreign, owner, builder, name)
        if kind != "load":
            owners[places] = program
        if kind == "store":
            launch.note_store(program, start, places)

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


def _drawn(count: int, launches: int) -> list[int]:
    """Return a random order in which programs run, the same whenever a verdict is repeated."""
    import torch

    order = list(range(count))
    random.Random(torch.initial_seed() * 1_000_003 + launches).shuffle(order)
    return order


def _number(builder: Any) -> int:
    (x, y, z), (_, rows, columns) = builder.grid_idx, builder.grid_dim
    return int((x * rows + y) * columns + z)


def _read(addresses: Any, kind: Any) -> Any:
    import numpy as np
    from triton._C.libtriton import interpreter

    on = np.ones(addresses.shape, dtype=bool)
    return interpreter.load(addresses, on, np.zeros(addresses.shape, dtype=kind), kind)
