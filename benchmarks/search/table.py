"""`Table`: a space of kernels, all of them measured, and a proposer over it.

A file of a table is CSV. Lines that begin with ``#`` say where it is from. The last
column, ``ms``, is the time, empty where the kernel failed. Configurations that are not in the file
cannot be proposed.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelgym_train.mcgs.knobs import Knob, KnobSpace
from kernelgym_train.mcgs.proposing import Proposal, Proposer
from kernelgym_train.mcgs.variant import MoveStep, Variant

__all__ = ["Config", "Table", "TableProposer", "read_table", "write_table"]

Config = tuple[str, ...]
"""The choice of each column."""


@dataclass(frozen=True, slots=True)
class Table:
    """Every configuration of a space, with its time."""

    name: str
    columns: Mapping[str, tuple[str, ...]]
    """Choices by column."""
    times_ms: Mapping[Config, float | None]
    """None for a configuration that fails."""
    notes: tuple[str, ...] = ()
    """Origin of the table, in lines for a reader."""

    @property
    def best_ms(self) -> float:
        """The shortest time."""
        return min(time for time in self.times_ms.values() if time is not None)

    def masked(self, share: float, seed: int) -> Table:
        """Return the table with a share of its configurations failing, by chance."""
        if not share:
            return self
        times = {
            config: None if _drawn(seed, "mask", *config).random() < share else time
            for config, time in self.times_ms.items()
        }
        if not any(time is not None for time in times.values()):
            return self
        return Table(self.name, self.columns, times, self.notes)

    def start(self, seed: int) -> Config:
        """Return a configuration that works and is no faster than most."""
        working = sorted(
            (time, config) for config, time in self.times_ms.items() if time is not None
        )
        slower = working[len(working) // 2 :]
        return _drawn(seed, "start").choice(slower)[1]


def _drawn(*parts: object) -> random.Random:
    text = ":".join(map(str, parts))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))


def read_table(path: Path) -> Table:
    """Read a table's file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    notes = tuple(line.lstrip("# ") for line in lines if line.startswith("#"))
    head, *rows = csv.reader(line for line in lines if not line.startswith("#"))
    names = head[:-1]
    times = {tuple(row[:-1]): float(row[-1]) if row[-1] else None for row in rows}
    columns = {
        name: tuple(sorted({config[at] for config in times}, key=_order))
        for at, name in enumerate(names)
    }
    return Table(path.stem, columns, times, notes)


def write_table(table: Table, path: Path) -> None:
    """Write a table's file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        for note in table.notes:
            file.write(f"# {note}\n")
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*table.columns, "ms"])
        for config, time in table.times_ms.items():
            rows.writerow([*config, "" if time is None else f"{time:.6g}"])


def _order(choice: str) -> tuple[float, str]:
    try:
        return float(choice), ""
    except ValueError:
        return 0.0, choice


class TableProposer(Proposer):
    """Proposes configurations of a table that differ in one column.

    Args:
        table: The table.
        start: Configuration that the search starts from.
    """

    def __init__(self, table: Table, start: Config) -> None:
        self._table, self._start = table, start
        self._names = list(table.columns)
        self._order: tuple[int, list[Config]] | None = None
        self._near = functools.lru_cache(maxsize=None)(self._others)

    def variant(self, config: Config) -> Variant:
        """Return a configuration as a state."""
        steps = tuple(
            MoveStep(name, "", choice)
            for name, choice, before in zip(self._names, config, self._start, strict=True)
            if choice != before
        )
        return Variant(f"config = {config!r}\n", "triton", applied=steps)

    def config(self, variant: Variant) -> Config:
        """Return a state's configuration."""
        made = {step.move: step.choice for step in variant.applied}
        return tuple(
            made.get(name, before) for name, before in zip(self._names, self._start, strict=True)
        )

    def drawn(self, seed: int, number: int) -> dict[str, str] | None:
        """Return the configuration of that number in a random order, by column; None past it."""
        if self._order is None or self._order[0] != seed:
            configs = list(self._table.times_ms)
            random.Random(seed).shuffle(configs)
            self._order = (seed, configs)
        configs = self._order[1]
        if number >= len(configs):
            return None
        return dict(zip(self._names, configs[number], strict=True))

    def priors(self, variant: Variant) -> tuple[tuple[str, float], ...]:
        """Return columns that can be changed, equally likely."""
        config = self.config(variant)
        fit = [name for name in self._names if self._near(config, name)]
        return tuple((name, 1.0 / len(fit)) for name in fit)

    def propose(self, variant: Variant, move: str, attempt: int) -> Proposal | None:
        """Return the configuration of that number, the nearest choices first."""
        near = self._near(self.config(variant), move)
        return near[attempt] if attempt < len(near) else None

    def simpler(self, variant: Variant) -> Sequence[Proposal]:
        """Return nothing: a configuration has no steps to take back."""
        return ()

    def space(self) -> KnobSpace:
        """Return all columns as knobs."""
        knobs = [Knob(name, choices) for name, choices in self._table.columns.items()]
        return KnobSpace(self.variant(self._start), tuple(k for k in knobs if len(k.choices) > 1))

    def values(self, space: KnobSpace, variant: Variant) -> Mapping[str, str] | None:
        """Return a state's choices; None if another column differs."""
        here = dict(zip(self._names, self.config(variant), strict=True))
        base = dict(zip(self._names, self.config(space.base), strict=True))
        names = {knob.name for knob in space.knobs}
        if any(here[name] != base[name] for name in self._names if name not in names):
            return None
        return {knob.name: here[knob.name] for knob in space.knobs}

    def tuned(self, space: KnobSpace, values: Mapping[str, str]) -> Proposal | None:
        """Return the configuration with these choices; None if the table has none."""
        base = self.config(space.base)
        config = tuple(
            values.get(name, before) for name, before in zip(self._names, base, strict=True)
        )
        if config not in self._table.times_ms:
            return None
        return Proposal(MoveStep("tune", "knobs", repr(values)), self.variant(config), "exact")

    def _others(self, config: Config, name: str) -> tuple[Proposal, ...]:
        at, choices = self._names.index(name), self._table.columns[name]
        here = choices.index(config[at])
        near = sorted(range(len(choices)), key=lambda there: (abs(there - here), there))
        found = []
        for there in near:
            other = (*config[:at], choices[there], *config[at + 1 :])
            if there != here and other in self._table.times_ms:
                step = MoveStep(name, "", choices[there])
                found.append(Proposal(step, self.variant(other), "exact"))
        return tuple(found)
