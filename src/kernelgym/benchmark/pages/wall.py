"""The wall: one tile per problem, one cell per sample.

Contract: pure. Every cell has a letter and a title beside its colour, and every tile leads to its
problem. Filters are the script's; without it all tiles are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelgym.benchmark.folders import PlayedEpisode
from kernelgym.benchmark.pages.text import escaped
from kernelgym.benchmark.pages.view import STATES, View, state_of

__all__ = ["cell", "legend", "wall"]


def wall(views: Sequence[View], link: Callable[[str], str]) -> list[str]:
    """Return the walls of all runs.

    Args:
        views: The runs.
        link: Where a problem's tile leads.
    """
    parts = [legend()]
    for view in views:
        if len(views) > 1:
            parts.append(f"<h3>{escaped(view.name)}</h3>")
        name = f"wall-{view.number}"
        states = "".join(f'<option value="{s}">{escaped(t[2])}</option>' for s, t in STATES.items())
        parts.append(
            f'<div class="tools" data-wall="{name}" hidden><label>Problem <input type="search" '
            'placeholder="part of its id"></label><label>Some sample is <select><option value="">'
            f"anything</option>{states}</select></label></div>"
        )
        parts.append(f'<div id="{name}">')
        levels = sorted({problem.level for problem in view.problems.values()})
        for level in levels:
            some = [i for i in view.groups if view.problems[i].level == level]
            parts.append(f"<h4>Level {level}: {len(some)} problems</h4>" if level else "<h4></h4>")
            parts.append('<div class="wall">')
            parts += [_tile(view, identity, link) for identity in some]
            parts.append("</div>")
        parts.append("</div>")
    return parts


def legend() -> str:
    """Return what letters and colours mean."""
    keys = dict.fromkeys(STATES.values())
    told = "".join(
        f'<span><span class="cell {kind}">{letter}</span> {escaped(name)}</span> '
        for letter, kind, name in keys
    )
    return f'<p class="legend">{told}</p>'


def cell(state: str, title: str) -> str:
    """Return one coloured cell with its letter."""
    letter, kind, name = STATES[state]
    return f'<span class="cell {kind}" title="{escaped(f"{title}: {name}")}">{letter}</span>'


def _tile(view: View, identity: str, link: Callable[[str], str]) -> str:
    group = {played.sample: played for played in view.groups[identity]}
    samples = range(max([*group, (view.run.samples or 0) - 1], default=0) + 1)
    cells, states = [], set()
    for sample in samples:
        played = group.get(sample)
        state = state_of(view, played) if played is not None else "missing"
        if played is None and view.run.samples is None:
            continue  # a gap in an import, which no plan asked for
        states.add(state)
        cells.append(cell(state, _title(view, identity, sample, played)))
    problem = view.problems[identity]
    short = identity.rpartition("/")[2]
    flag = " *" if identity in view.degenerate else ""
    why = f" (degenerate: {', '.join(view.degenerate[identity])})" if flag else ""
    return (
        f'<a class="tile" href="{escaped(link(identity))}" title="{escaped(problem.name + why)}" '
        f'data-name="{escaped(f"{identity} {problem.name}")}" '
        f'data-states="{" ".join(sorted(states))}">'
        f'{escaped(short)}{flag}<span class="cells">{"".join(cells)}</span></a>'
    )


def _title(view: View, identity: str, sample: int, played: PlayedEpisode | None) -> str:
    if played is None:
        return f"sample {sample}, {view.missing.get((identity, sample), 'missing')}"
    best = played.outcome.best
    speed = f", {best.speedup:.3g}x" if best is not None and best.timed else ""
    return f"sample {sample}, {len(played.turns)} turns{speed}"
