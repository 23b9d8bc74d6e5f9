"""A run as the pages show it, and the states of its episodes.

Contract: frozen; made by `view_of`. `state_of` returns one state for every episode.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup

from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome, winner
from kernelgym.benchmark.numbers.roofline import RooflineLimit
from kernelgym.benchmark.numbers.speeds import BaselineTime
from kernelgym.benchmark.pages.text import escaped
from kernelgym.benchmark.recorded_runs import PlayedEpisode, RecordedRun, SampleKey
from kernelgym.benchmark.scorecard import (
    CardNumber,
    RunCounts,
    counts,
    degenerate_problems,
    numbers,
)
from kernelgym.benchmark.scorecard import tables as tables_of
from kernelgym.types import Problem, Status, Trajectory, Turn, Verdict, text_digest

STATES: Mapping[str, tuple[str, str, str]] = {
    "fast2": ("2", "fast2", "certainly more than twice as fast"),
    "fast1": ("F", "fast1", "certainly faster"),
    "correct": ("C", "correct", "correct"),
    "distrusted": ("C", "distrusted", "correct, its time distrusted or missing: host busy"),
    "wrong": ("W", "wrong", "wrong output"),
    "runtime_error": ("R", "fails", "failed while running"),
    "compile_error": ("E", "fails", "did not compile"),
    "timeout": ("T", "fails", "ran out of time"),
    "rejected": ("X", "refused", "refused as cheating"),
    "no_kernel": ("-", "none", "no kernel in the answer"),
    "unavailable": ("?", "lost", "not judged"),
    "missing": ("?", "lost", "missing"),
}
"""Letter, CSS class and name of each state."""


_LEVEL = re.compile(r"/L(\d+)/")


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with everything that the pages show of it."""

    number: int
    """Number of the run in the report, from 0; decides its colour."""
    run: RecordedRun
    turns: int
    """Largest number of turns of an episode."""
    degenerate: Mapping[str, tuple[str, ...]]
    counts: RunCounts
    tables: Mapping[str, list[EpisodeOutcome]]
    cards: Mapping[str, list[CardNumber]]
    """Score cards by table."""
    problems: Mapping[str, Problem]
    groups: Mapping[str, list[PlayedEpisode]]
    """Episodes by problem, in the order of the plan."""
    missing: Mapping[SampleKey, str]
    baselines: Mapping[str, tuple[BaselineTime, ...]]
    """Times of compiled and eager references by problem id, from files."""
    limits: Mapping[str, RooflineLimit]
    """Roofline limits by problem id; empty if the device's rates were not measured."""

    @property
    def name(self) -> str:
        """The run's name."""
        return self.run.name

    @property
    def episodes(self) -> list[PlayedEpisode]:
        """All episodes."""
        return [played for group in self.groups.values() for played in group]

    @property
    def trajectories(self) -> dict[str, list[Trajectory]]:
        """Episodes by problem, as they were recorded."""
        return {
            name: [played.record.trajectory for played in group]
            for name, group in self.groups.items()
        }

    @property
    def turns_played(self) -> list[tuple[PlayedEpisode, Turn]]:
        """Every turn with its episode."""
        return [(played, turn) for played in self.episodes for turn in played.turns]


def view_of(
    run: RecordedRun,
    number: int = 0,
    baselines: Mapping[str, tuple[BaselineTime, ...]] | None = None,
    limits: Mapping[str, RooflineLimit] | None = None,
) -> RunView:
    """Return a run as the pages show it."""
    turns = max((each.record.trajectory.horizon for each in run.episodes), default=1)
    groups: dict[str, list[PlayedEpisode]] = {identity: [] for identity in run.planned}
    problems: dict[str, Problem] = {}
    for played in run.episodes:
        problem = played.record.trajectory.problem
        groups.setdefault(problem.id, []).append(played)
        # An episode may have been recorded without its problem's source.
        if problem.id not in problems or not problems[problem.id].source:
            problems[problem.id] = problem
    for identity in groups:
        problems.setdefault(identity, _unplayed(identity))
    degenerate = degenerate_problems(run)
    tables = tables_of(run, degenerate)
    return RunView(
        number,
        run,
        turns,
        degenerate,
        counts(run, degenerate),
        tables,
        {name: numbers(some, turns=turns, limits=limits) for name, some in tables.items()},
        problems,
        groups,
        run.missing,
        baselines or {},
        limits or {},
    )


def _unplayed(identity: str) -> Problem:
    """Return a problem without source, from its id."""
    found = _LEVEL.search(identity)
    suite, level = identity.partition("/")[0], int(found[1]) if found else 0
    return Problem(identity, suite, level, identity.rpartition("/")[2], "")


@cache
def anchor(identity: str) -> str:
    """Return a problem's name in HTML ids, links and file names."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", identity).strip("-")[:60]
    return f"p-{plain}-{text_digest(identity)[:6]}"


def verdict_state(verdict: Verdict) -> str:
    """Return the state of one verdict; a key of `STATES`."""
    if verdict.status is not Status.CORRECT:
        return verdict.status.value
    if verdict.distrusted:
        return "distrusted"
    if verdict.speedup_low > 2.0:
        return "fast2"
    return "fast1" if verdict.speedup_low > 1.0 else "correct"


def state_cell(state: str, title: str) -> Markup:
    """Return one coloured cell with its letter, as HTML."""
    letter, kind, name = STATES[state]
    return Markup('<span class="cell {}" title="{}">{}</span>').format(
        kind, escaped(f"{title}: {name}"), letter
    )


def state_of(view: RunView, played: PlayedEpisode) -> str:
    """Return an episode's state: that of its best turn, or that it is missing."""
    if played.second is not None and played.second.valid:
        return verdict_state(played.second)
    if not played.turns:
        return "missing"
    best = winner(played.turns).verdict
    if best.correct:
        return verdict_state(best)
    if played.key in view.missing:
        return "missing"
    last = next((t.verdict for t in reversed(played.turns) if t.verdict.valid), None)
    return verdict_state(last) if last is not None else "unavailable"
