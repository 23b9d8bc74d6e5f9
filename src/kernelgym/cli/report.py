"""``kernelgym report``: numbers, comparisons and a page of one run or several."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from kernelgym.cli import judging
from kernelgym.cli.console import print_table, print_text, say
from kernelgym.cli.options import Command, path_apart
from kernelgym.cli.progress import progress_bar
from kernelgym.errors import UsageError

if TYPE_CHECKING:
    from kernelgym.benchmark.recorded_runs import RecordedRun
    from kernelgym.benchmark.reporting import BenchmarkReport

_MOST_CLAIMS = 10
"""Largest number of differing claims that are printed for a run."""


@dataclass(frozen=True, kw_only=True)
class ReportCommand(Command):
    """Print the numbers of runs, and compare runs.

    RUN is the folder of an eval run, an import, a training run or a search, or a file of
    trajectories. Several runs are compared with the first one.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """Paths of the runs."""
    html: str | None = None
    """Path of the page to write: one FILE, or FOLDER/ with a file per problem."""
    json: bool = False
    """Print all numbers as one JSON object, and nothing else."""
    csv: bool = False
    """Print one line per answer as CSV, and nothing else."""
    measure_winners: bool = False
    """First measure again the fastest kernel of each episode that has several timed turns, on the
    run's device by its rules."""
    baseline: tuple[str, ...] = ()
    """Files of baseline times, written by `kernelgym baseline --modes` or in KernelBench's layout,
    for speedups over compiled references."""
    rates: str = ""
    """File that `kernelgym device --json` printed on the run's device, for shares of the roofline
    and SOL scores."""
    partial: bool = False
    """Report what is readable of a damaged run: skip unreadable lines and missing files, with a
    note on each."""

    def run(self) -> int:
        """Print the report and write its page; return the exit code."""
        if not self.runs:
            raise UsageError(
                "`kernelgym report` needs a run, as in `kernelgym report runs/first --html "
                "first.html`"
            )
        if self.html == "":
            raise UsageError("--html takes a FILE, or FOLDER/ for a page per problem; got no name")
        if self.html:
            path_apart(self.html, *self.runs, *self.baseline, option="--html")
        if self.json and self.csv:
            raise UsageError("--json and --csv both print to standard output; give one of them")
        from kernelgym.benchmark.reporting import COLUMNS, report

        for path in self.runs if self.measure_winners else ():
            _measure(path)
        found = report(
            *self.runs,
            baselines=self.baseline,
            rates=self.rates or None,
            partial=self.partial,
        )
        written = None if self.html is None else found.write_html(self.html)
        if self.json:
            print(json.dumps(found.to_dict(), indent=2, allow_nan=False))
        elif self.csv:
            lines = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
            lines.writeheader()
            lines.writerows(found.rows())
        else:
            _tell(found)
        if written is not None:
            say(f"the page is {written}")
        return 0


def _tell_claims(run: RecordedRun) -> None:
    """Print how the claims of an import differ from the verdicts here."""
    from kernelgym.benchmark.claims import compare

    if not run.claims:
        return
    ours = {each.key: each.turns[-1].verdict for each in run.episodes if each.turns}
    differs = {key: compare(claim, ours.get(key)) for key, claim in run.claims.items()}
    differs = {key: why for key, why in differs.items() if why}
    print_text(
        f"\n{run.name}: {len(differs)} of {len(run.claims)} claims differ from verdicts here"
    )
    for (problem, sample), why in list(differs.items())[:_MOST_CLAIMS]:
        print_text(f"{problem} sample {sample}: {why}", "yellow")
    if len(differs) > _MOST_CLAIMS:
        print_text(f"{len(differs) - _MOST_CLAIMS} more: see --json or --html", "yellow")


def _measure(path: str) -> None:
    """Measure the fastest kernels of a run again, by the run's rules and on its device."""
    from kernelgym.benchmark.recorded_runs import read_run
    from kernelgym.benchmark.winners import measure_winners, unconfirmed
    from kernelgym.rulesets import recorded_ruleset

    run = read_run(path)
    chosen = unconfirmed(run)
    if not chosen:
        return
    record = chosen[0].record
    rules = recorded_ruleset(record.ruleset)
    with (
        judging.open_evaluator(record.device, rules) as evaluator,
        progress_bar("winners", len(chosen)) as advance,
    ):
        measure_winners(run, evaluator, on_verdict=advance)


def _tell(found: BenchmarkReport) -> None:
    from kernelgym.benchmark.pages.compare import comparison_columns, comparison_rows
    from kernelgym.benchmark.pages.front import card_rows, count_rows, headline, limits

    for view in found.views:
        print_text(headline(view))
    names = [view.name for view in found.views]
    for table in dict.fromkeys(name for view in found.views for name in view.cards):
        if table.startswith("family "):
            continue  # the page and --json have them
        print_text(f"\n{table}", "bold")
        print_table(
            ("", *names),
            [
                (name, *("-" if number is None else str(number) for number in numbers))
                for name, numbers in card_rows(found.views, table)
            ],
        )
    for each in found.comparisons:
        print_text(f"\n{each.second} against {each.first}", "bold")
        print_table(comparison_columns(each), comparison_rows(each))
        for caution in each.cautions:
            print_text(caution, "yellow")
    print_text("\ncounts", "bold")
    print_table(("", *names), count_rows(found.views))
    for view in found.views:
        _tell_claims(view.run)
        for note in view.run.notes:
            print_text(f"note: {note}", "yellow")
    print_text(f"\n{limits(found.views)}", "dim")
