"""`live_table`: how a search stands, on a terminal.

Contract: on a terminal, a table of evaluations, the best so far with the interval of its verdict,
failures and time is kept below what is said; anywhere else only lines are printed. Both go to
standard error.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelgym_train.mcgs.events import Event

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Standing", "live_table"]


@dataclass(slots=True)
class Standing:
    """What the table shows, folded from events."""

    builds: int
    """Evaluations at most."""
    evaluations: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """By status."""
    start: float = 0.0
    """The start's speed over the reference."""
    best: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Speedup over the start of the best single verdict, and its 95 % interval."""
    value: float = 0.0
    """ln of that speedup."""
    leader: str = ""
    """Key of that state."""
    confirmed: str = ""
    """Key of the best that a duel has confirmed; empty while that is the start."""
    seconds: float = 0.0

    def take(self, event: Event) -> None:
        """Take in one event."""
        self.seconds = event.seconds
        given = event.fields
        match event.name:
            case "start":
                self.start = self.start or given["speedup"]
            case "judged":
                self.evaluations += 1
                if given["value"] is None:
                    why = given["status"]
                    self.failures[why] = self.failures.get(why, 0) + 1
                elif not given.get("twin") and given["value"] > self.value:
                    self.value, speedup = given["value"], math.exp(given["value"])
                    low = min(speedup, given["speedup_low"] / self.start)
                    # The interval of a ratio is as wide above as below, in logarithms.
                    high = speedup * speedup / low if low > 0.0 else math.inf
                    self.best, self.leader = (speedup, low, high), given["key"]
            case "duel":
                if given["decided"] == "second" and given["low"] > 1.0:
                    self.confirmed = given["second"]

    def cells(self) -> dict[str, str]:
        """Return what stands in the table, by heading."""
        speedup, low, high = self.best
        told = f"{speedup:.3g}x ({low:.3g} to {high:.3g})"
        if self.leader and self.leader == self.confirmed:
            told += ", confirmed"
        failures = ", ".join(f"{count} {why}" for why, count in sorted(self.failures.items()))
        return {
            "evaluations": f"{self.evaluations} of {self.builds}",
            "best so far": told if self.leader else "the start",
            "failures": failures or "none",
            "seconds": f"{self.seconds:.0f}",
        }


@contextlib.contextmanager
def live_table(builds: int) -> Iterator[tuple[Callable[[str], None], Callable[[Event], None]]]:
    """Show a search; yields functions for lines and for events.

    Args:
        builds: Evaluations at most.
    """
    if not sys.stderr.isatty():
        yield (lambda line: print(line, file=sys.stderr, flush=True)), (lambda event: None)
        return
    from rich.console import Console
    from rich.live import Live

    standing, told_at = Standing(builds), time.monotonic()

    def take(event: Event) -> None:
        nonlocal told_at
        standing.take(event)
        told_at = time.monotonic()

    def shown() -> Table:
        cells = standing.cells()
        cells["seconds"] = f"{standing.seconds + time.monotonic() - told_at:.0f}"
        return _table(cells)

    console = Console(stderr=True)
    options: dict[str, Any] = {"console": console, "transient": True, "refresh_per_second": 2}
    with Live(get_renderable=shown, **options):
        yield (lambda line: console.print(line, markup=False, highlight=False)), take


def _table(cells: dict[str, str]) -> Table:
    from rich.table import Table

    table = Table(*cells)
    table.add_row(*cells.values())
    return table
