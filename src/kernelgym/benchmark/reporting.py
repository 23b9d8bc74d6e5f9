"""`report`: numbers, comparisons and a page from recorded runs.

Contract: runs are only read; nothing is run or judged. Several runs are compared with the first
one, and refused if they are not comparable.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.benchmark.baseline_files import baselines_of, missing_times
from kernelgym.benchmark.claims import compare
from kernelgym.benchmark.comparison import RunComparison, compare_runs
from kernelgym.benchmark.device_rates import DeviceRates, limits_of
from kernelgym.benchmark.numbers.rates import fast_curve
from kernelgym.benchmark.numbers.taxonomy import solved_by_turn
from kernelgym.benchmark.pages.report import one_file, write_file, write_folder
from kernelgym.benchmark.pages.speed import PLACES
from kernelgym.benchmark.pages.view import RunView, view_of
from kernelgym.benchmark.recorded_runs import RecordedRun, read_run
from kernelgym.benchmark.scorecard import costs, solved
from kernelgym.errors import UsageError

COLUMNS = (
    *("run", "problem", "level", "family", "degenerate", "sample", "turn", "status", "compiled"),
    *("correct", "speedup", "speedup_low", "speedup_high", "kernel_ms", "reference_ms"),
    *("floor_share", "custom_share", "score", "findings", "kernel_digest", "ruleset", "device"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "usd", "latency_s", "judge_s"),
)
"""Columns of the table of answers."""


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """Numbers of runs, and their comparisons."""

    views: tuple[RunView, ...]
    comparisons: tuple[RunComparison, ...]

    @property
    def runs(self) -> tuple[RecordedRun, ...]:
        """Runs in the order in which they were given."""
        return tuple(view.run for view in self.views)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as plain JSON data."""
        return {
            "version": 1,
            "runs": [_run_data(view) for view in self.views],
            "comparisons": [_comparison_data(each) for each in self.comparisons],
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row per answer, with `COLUMNS`; unknown values are empty."""
        for view in self.views:
            for played, turn in view.turns_played:
                verdict, timing = turn.verdict, turn.verdict.timing
                problem = played.record.trajectory.problem
                answer = played.answers.get(turn.index)
                usage = answer.usage if answer else None
                kernel = turn.reply.kernel
                values: dict[str, Any] = {
                    "run": view.name,
                    "problem": problem.id,
                    "level": problem.level,
                    "family": problem.family,
                    "degenerate": problem.id in view.degenerate,
                    "sample": played.sample,
                    "turn": turn.index,
                    "status": verdict.status.value,
                    "compiled": verdict.compiled,
                    "correct": verdict.correct,
                    "custom_share": verdict.custom_share or "",
                    "score": turn.score.total,
                    "findings": " ".join(each.code for each in verdict.findings),
                    "kernel_digest": kernel.digest if kernel else "",
                    "ruleset": verdict.ruleset or played.record.ruleset,
                    "device": verdict.device or played.record.device,
                    "judge_s": verdict.wall_s or "",
                }
                if timing is not None:
                    names = ("speedup", "speedup_low", "kernel_ms", "reference_ms")
                    values |= {name: getattr(timing, name) for name in names}
                    values["speedup_high"] = timing.speedup_high or ""
                    values["floor_share"] = timing.floor_share or ""
                if usage is not None:
                    values["prompt_tokens"] = usage.prompt
                    values["cached_tokens"] = usage.cached
                    values["completion_tokens"] = usage.completion
                if answer is not None:
                    values["usd"] = "" if answer.usd is None else answer.usd
                    values["latency_s"] = answer.latency_s or ""
                yield {name: values.get(name, "") for name in COLUMNS}

    def html(self) -> str:
        """Return the report as one page."""
        return one_file(self.views, self.comparisons)

    def write_html(self, path: str | Path) -> Path:
        """Write the report's page; return the file to open.

        Args:
            path: A file; or a folder, if it ends with a slash or is one, for a page per problem.

        Raises:
            UsageError: If it cannot be written.
        """
        place = Path(path)
        if str(path).endswith("/") or place.is_dir():
            return write_folder(place, self.views, self.comparisons)[0]
        write_file(place, self.html())
        return place


def report(
    *runs: str | Path | RecordedRun,
    html: str | Path | None = None,
    baselines: Sequence[str | Path] = (),
    rates: str | Path | None = None,
    partial: bool = False,
) -> BenchmarkReport:
    """Read runs and compute their numbers and comparisons.

    Args:
        *runs: Folders of runs, files of trajectories, or runs that were read.
        html: Path of the page; a folder if it ends with a slash. None for no page.
        baselines: Files of baseline times, kernelgym's or in KernelBench's layout.
        rates: File that ``kernelgym device --json`` printed, for shares of the roofline and SOL
            scores; None for neither.
        partial: Leave damaged lines and missing files of the runs out, with a note on each.

    Returns:
        The report; its `to_dict` and `rows` give numbers.

    Raises:
        UsageError: If a run cannot be read, is empty, or cannot be compared with the first one; or
            if a file is another device's.

    Examples:
        >>> from kernelgym.benchmark import report  # doctest: +SKIP
        >>> found = report("runs/first", html="first.html")  # doctest: +SKIP
        >>> found.to_dict()["runs"][0]["tables"]["all problems"]["correct"]  # doctest: +SKIP
    """
    if not runs:
        raise UsageError("a report needs a run: a folder of `kernelgym eval`, or trajectories")
    notes = missing_times(baselines)
    read = [
        dataclasses.replace(run, notes=run.notes + notes)
        for run in _named_apart(
            [
                each if isinstance(each, RecordedRun) else read_run(each, partial=partial)
                for each in runs
            ]
        )
    ]
    comparisons = tuple(compare_runs(read[0], other) for other in read[1:])
    measured = None if rates is None else DeviceRates.read(rates)
    views = tuple(
        view_of(
            run,
            number,
            baselines_of(run, baselines) if baselines else None,
            None if measured is None else limits_of(run, measured, baselines),
        )
        for number, run in enumerate(read)
    )
    found = BenchmarkReport(views, comparisons)
    if html is not None:
        found.write_html(html)
    return found


def _named_apart(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """Return the runs with different names."""
    seen: dict[str, int] = {}
    named = []
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        count = seen[run.name]
        named.append(run if count == 1 else dataclasses.replace(run, name=f"{run.name} ({count})"))
    return named


def _run_data(view: RunView) -> dict[str, Any]:
    run = view.run
    data: dict[str, Any] = {
        "name": run.name,
        "kind": run.kind,
        "rulesets": list(run.rulesets),
        "devices": list(dict.fromkeys(each.record.device for each in run.episodes)),
        "languages": list(dict.fromkeys(each.record.language for each in run.episodes)),
        "counts": dataclasses.asdict(view.counts),
        "solved": solved(run),
        "tables": {
            name: {number.key: number.to_dict() for number in card}
            for name, card in view.cards.items()
        },
        "fast_p": {
            which: [dataclasses.asdict(each) for each in fast_curve(run.outcomes, PLACES, within=w)]
            for which, w in (("first", False), ("within", True))
        },
        "solved_by_turn": [dataclasses.asdict(rate) for rate in solved_by_turn(view.trajectories)],
        "costs": costs(run),
        "degenerate": {name: list(reasons) for name, reasons in view.degenerate.items()},
        "missing": [
            {"problem": problem, "sample": sample, "why": why}
            for (problem, sample), why in view.missing.items()
        ],
        "notes": list(run.notes),
    }
    if run.claims:
        ours = {each.key: each.turns[-1].verdict for each in run.episodes if each.turns}
        data["claims"] = [
            {"problem": key[0], "sample": key[1], "differs": compare(claim, ours.get(key))}
            for key, claim in run.claims.items()
        ]
    return data


def _comparison_data(found: RunComparison) -> dict[str, Any]:
    rows = {}
    for key, _, paired in found.rows:
        row = dataclasses.asdict(paired) | {"problems": paired.problems}
        if key.startswith("log_"):
            row["ratio"] = math.exp(paired.difference)
        rows[key] = row
    return {
        "first": found.first,
        "second": found.second,
        "rows": rows,
        "only_first": found.only_first,
        "only_second": found.only_second,
        "cautions": list(found.cautions),
    }
