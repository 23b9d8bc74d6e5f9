"""Output to the terminal: tables, verdicts, source text, transcripts.

Contract: a terminal gets colours and its own width; other outputs get plain text, one record per
line, never wrapped or cut, so that it can be piped. Text from kernels and compilers is not markup:
brackets are printed, and control characters are printed as escapes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from kernelgym.feedback import cut_middle
from kernelgym.feedback.facts import figures, wrong_facts
from kernelgym.records.run_logs import visible
from kernelgym.types import Severity, Status, Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LOG_CHARS = 3_000
"""Largest number of characters of a kernel's output that are printed."""
_PLAIN_WIDTH = 10_000
STYLES = {
    **{status.value: "bold red" for status in Status},
    **{"correct": "bold green", "rejected": "bold magenta", "unavailable": "bold yellow"},
    **{"running": "green", "died": "red", "unknown": "yellow", "interrupted": "yellow"},
}
"""Styles of verdicts' statuses and runs' states."""
_SEVERITIES = {Severity.HARD: "red", Severity.SOFT: "yellow", Severity.INFO: "dim"}


def console(file: TextIO | None = None) -> Console:
    """Return a console on `file`; on the current standard output if None."""
    from rich.console import Console

    class OurConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # `main` handles it; Rich would exit here

    file = sys.stdout if file is None else file
    width = None if file.isatty() else _PLAIN_WIDTH
    return OurConsole(file=file, width=width, highlight=False, markup=False, emoji=False)


def say(text: str) -> None:
    """Print one line about the command itself on standard error."""
    line = visible(" ".join(text.split()))
    print(f"kernelgym: {line}", file=sys.stderr, flush=True)


def print_text(text: str, style: str = "") -> None:
    """Print text, with control characters as escapes."""
    console().print(visible(text), style=style or None, soft_wrap=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table; columns of numbers are aligned to the right."""
    out, table = console(), table_of(columns, rows, title)
    if out.is_terminal:
        out.print(table)
        return
    # Rich pads lines to their full width; files get them without trailing blanks.
    with out.capture() as capture:
        out.print(table)
    out.file.write("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n")


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Table:
    """Return a table in which statuses of verdicts and states of runs are coloured."""
    from rich.table import Table
    from rich.text import Text

    cells = [[visible(str(value)) for value in row] for row in rows]
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        numbers = all(re.fullmatch(r"[-+]?[\d.]+x?|-?", row[index]) for row in cells)
        table.add_column(column, justify="right" if numbers and cells else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(value, style=STYLES.get(value, "")) for value in row))
    return table


def print_source(source: str, language: str = "python") -> None:
    """Print source text, highlighted on a terminal and untouched elsewhere."""
    from rich.syntax import Syntax

    out = console()
    if out.is_terminal:
        out.print(Syntax(visible(source), language, theme="ansi_dark", word_wrap=True))
    else:
        print_text(source.rstrip("\n"))


def print_verdict(verdict: Verdict, *, untimed: str = "") -> None:
    """Print a verdict for a reader.

    Args:
        verdict: The verdict.
        untimed: Reason why a correct kernel has no timing.
    """
    from rich.text import Text

    out = console()
    head = Text(verdict.status.value, style=STYLES[verdict.status.value])
    if verdict.trials:
        head.append(f"  {verdict.trials_passed} of {verdict.trials} trials passed", style="default")
    out.print(head, soft_wrap=True)
    if verdict.message:
        print_text(verdict.message)
    for fact in wrong_facts(verdict) if verdict.mismatch is not None else ():
        print_text(f"  {fact}")
    if verdict.timing is not None:
        timing = verdict.timing
        print_text(
            f"speedup    {timing.speedup:.2f}x (at least {timing.speedup_low:.2f}x with 95 % "
            f"confidence); kernel {timing.kernel_ms:.4g} ms, {timing.baseline} reference "
            f"{timing.reference_ms:.4g} ms, {timing.samples} pairs"
        )
        for fact in figures(verdict):
            print_text(f"  {fact}")
    elif verdict.correct:
        print_text(f"speedup    not timed{f': {untimed}' if untimed else ''}")
    if verdict.max_abs_error > 0.0:
        print_text(
            f"error      {verdict.max_abs_error:.3g} absolute, {verdict.max_rel_error:.3g} relative"
        )
    for finding in verdict.findings:
        place = f" line {finding.line}" if finding.line else ""
        print_text(
            f"{finding.severity.value:<4} note{place}: {finding.message} [{finding.code}]",
            _SEVERITIES[finding.severity],
        )
    if verdict.isolation:
        print_text(f"isolation  {verdict.isolation}", "dim")
    where = f"on {verdict.device}" if verdict.device else "not run"
    print_text(f"ruleset    {verdict.ruleset}, {where}", "dim")
    if verdict.seed:
        print_text(f"seed       {verdict.seed} (repeat it with --replay)", "dim")
    print_text(f"took       {verdict.wall_s:.2f} s", "dim")
    if verdict.log.strip():
        print_text("output of the compiler or the kernel:")
        for line in cut_middle(verdict.log.strip(), LOG_CHARS).splitlines():
            print_text(f"  | {line}", "dim")
