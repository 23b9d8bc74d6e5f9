"""The wall: one tile per problem, one cell per sample.

Contract: pure. A cell has a state, whose letter and colour the page shows, and a title.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernelgym.benchmark.pages.view import RunView, state_of
from kernelgym.benchmark.recorded_runs import PlayedEpisode


def wall_tiles(view: RunView) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield each level of a run with the tiles of its problems."""
    for level in sorted({problem.level for problem in view.problems.values()}):
        chosen = [identity for identity in view.groups if view.problems[identity].level == level]
        yield level, [_tile(view, identity) for identity in chosen]


def _tile(view: RunView, identity: str) -> dict[str, Any]:
    group = {played.sample: played for played in view.groups[identity]}
    cells = []
    for sample in range(max([*group, (view.run.samples or 0) - 1], default=0) + 1):
        played = group.get(sample)
        if played is not None:
            cells.append((state_of(view, played), _title(sample, played)))
        elif view.run.samples is not None:  # otherwise it is a gap, which no plan asked for
            why = view.missing.get((identity, sample), "missing")
            cells.append(("missing", f"sample {sample}, {why}"))
    problem, reasons = view.problems[identity], view.degenerate.get(identity, ())
    note = f" (degenerate: {', '.join(reasons)})" if reasons else ""
    return {
        "id": identity,
        "name": problem.name,
        "title": problem.name + note,
        "degenerate": bool(reasons),
        "cells": cells,
        "states": {state for state, _ in cells},
    }


def _title(sample: int, played: PlayedEpisode) -> str:
    best = played.outcome.best
    speed = f", {best.speedup:.3g}x" if best is not None and best.timed else ""
    return f"sample {sample}, {len(played.turns)} turns{speed}"
