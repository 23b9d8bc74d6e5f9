"""A progress bar on standard error, if that is a terminal; nothing otherwise."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar while the block runs; yield a function to call after each step."""
    if not sys.stderr.isatty() or not total:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, Elapsed(), Remaining(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)
