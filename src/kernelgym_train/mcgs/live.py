"""`live_table`: table on a terminal that shows a running search.

Contract: on a terminal, a table of evaluations, the best so far with the interval of its verdict,
failures and time is kept below the lines that the search prints. Anywhere else the lines are
printed, and one a minute with rate and time left. Both go to standard error, and lines into the
run's log.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kernelgym.pace import Pace, line_a_minute
from kernelgym.records.run_lock import LOG
from kernelgym.records.run_logs import tell, visible
from kernelgym_train.mcgs.state import SearchState

if TYPE_CHECKING:
    from rich.table import Table


def cells(state: SearchState, builds: int) -> dict[str, str]:
    """Return the table's cells by heading.

    Args:
        state: The search.
        builds: Evaluations at most.
    """
    leader, best = state.led_since[0], "the start"
    if leader not in ("", state.start):
        value, reach = state.graph.nodes[leader].value, state.reach(leader)
        speedup, low, high = (math.exp(value + at) for at in (0.0, -reach, reach))
        best = f"{speedup:.3g}x ({low:.3g} to {high:.3g})"
        best += ", confirmed" if leader == state.incumbent else ""
    failures = ", ".join(f"{count} {why}" for why, count in sorted(state.failures.items()))
    asks = state.asks
    asked = {"asked": f"{len(asks.asks)}, {asks.usd:.2f} USD"} if asks.asks else {}
    return {
        "evaluations": f"{state.evaluations} of {builds}",
        "best so far": best,
        "failures": failures or "none",
        **asked,
    }


@contextlib.contextmanager
def live_table(
    builds: int,
) -> Iterator[tuple[Callable[[str], None], Callable[[SearchState], None]]]:
    """Show a running search; yield functions that take a log line and the search's state.

    Args:
        builds: Evaluations at most.
    """
    pace = Pace("evaluations", builds)

    def counted(state: SearchState) -> None:
        pace.done = state.evaluations

    if not sys.stderr.isatty():
        with line_a_minute(pace.line, tell):
            yield tell, counted
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    now, told = {"": "starting"}, (0.0, time.monotonic())

    def watch(state: SearchState) -> None:
        nonlocal now, told
        now, told = cells(state, builds), (state.seconds, time.monotonic())

    def shown() -> Table:
        seconds, at = told
        table = Table(*now, "seconds")
        table.add_row(*now.values(), f"{seconds + time.monotonic() - at:.0f}")
        return table

    console = Console(stderr=True)
    options: dict[str, Any] = {"console": console, "transient": True, "refresh_per_second": 2}
    with Live(get_renderable=shown, **options):

        def say(line: str) -> None:
            line = visible(line)
            LOG.info("%s", line)
            console.print(line, markup=False, highlight=False)

        yield say, watch
