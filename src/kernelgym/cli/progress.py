"""Progress on standard error: a bar on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from kernelgym.pace import Pace, line_a_minute
from kernelgym.records.run_lock import LOG
from kernelgym.records.run_logs import tell


@contextlib.contextmanager
def progress_bar(title: str, total: int, done: int = 0) -> Iterator[Callable[[], None]]:
    """Show the progress of the enclosed block; yield a function to call after each step.

    A run that is being logged gets the line of each minute in its log, also on a terminal.

    Args:
        title: Name of the steps.
        total: Number of all steps.
        done: Number of steps that were done before.
    """
    if not total:
        yield lambda: None
        return
    pace = Pace(title, total, done)
    if not sys.stderr.isatty():
        with line_a_minute(pace.line, lambda line: tell(line, "kernelgym: ")):
            yield pace.advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        line_a_minute(pace.line, LOG.info),
        Progress(
            *columns, Elapsed(), Remaining(), console=Console(stderr=True), transient=True
        ) as bar,
    ):
        task = bar.add_task(title, total=total, completed=done)

        def advance() -> None:
            pace.advance()
            bar.advance(task)

        yield advance
