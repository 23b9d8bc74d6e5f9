"""Drawings of a report: gain by evaluation, and graph.

Contract: each function returns the shapes of a `SearchDrawing`, which ``report.html`` writes as
SVG and escapes. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from kernelgym_train.mcgs.graph import SearchGraph
from kernelgym_train.mcgs.state import SearchState

MOST_NODES = 80
"""Largest number of nodes drawn; a larger graph is reduced to its best nodes and their paths."""
_WIDTH = 960
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 40
_GOOD, _BAD, _PLAIN, _LINE = "#1a7f37", "#cf222e", "#57606a", "#d0d7de"


@dataclass(slots=True)
class SearchDrawing:
    """Shapes of one drawing, with coordinates in pixels from the upper left corner."""

    label: str
    """Description for readers who cannot see the drawing."""
    height: int
    width: int = _WIDTH
    lines: list[tuple[float, float, float, float, str, str]] = field(default_factory=list)
    """(x, y) of both ends, colour, and the text that is shown on hovering."""
    path: str = ""
    """Path of the curve, in SVG's notation."""
    crosses: list[tuple[float, float, str]] = field(default_factory=list)
    """(x, y), and the text that is shown on hovering."""
    dots: list[tuple[float, float, int, str, str]] = field(default_factory=list)
    """(x, y), radius, colour, and the text that is shown on hovering."""
    texts: list[tuple[float, float, str, str]] = field(default_factory=list)
    """(x, y), anchor (``start``, ``middle`` or ``end``), and the text."""


def gain_chart(state: SearchState) -> SearchDrawing:
    """Return a chart of every evaluation's speedup over the start, and of the best so far.

    A cross at the bottom is a failure. A vertical line is a comparison with the best so far, green
    where it confirmed a better state.
    """
    height, trials = 300, state.evaluated
    values = [trial.value for trial in trials if trial.value is not None]
    low, high = min([0.0, *values]), max([0.0, *values])
    high = max(high, low + 0.1)
    last = max(len(trials), 1)

    def x(number: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * number / last, 1)

    def y(value: float) -> float:
        return round(_TOP + (height - _TOP - _BOTTOM) * (high - value) / (high - low), 1)

    drawing = SearchDrawing("speedup over the start by evaluation", height)
    for value in sorted({low + (high - low) * part / 5 for part in range(6)} | {0.0}):
        drawing.lines.append((_LEFT, y(value), _WIDTH - _RIGHT, y(value), _LINE, ""))
        drawing.texts.append((_LEFT - 6, y(value) + 4, "end", f"{math.exp(value):.3g}x"))
    for duel in state.duels:
        if duel.kind == "duel":
            colour, at = _GOOD if duel.decided == "second" else _LINE, x(duel.after)
            told = f"times as fast: {duel.ratio:.3g} ({duel.low:.3g} to {duel.high:.3g})"
            drawing.lines.append((at, _TOP, at, height - _BOTTOM, colour, told))
    best, path = 0.0, [f"M{x(0)},{y(0.0)}"]
    for number, trial in enumerate(trials, 1):
        told = f"{number}: {state.steps(trial.proposed)}"
        if trial.value is None:
            drawing.crosses.append((x(number), height - _BOTTOM, f"{told}: {trial.status}"))
            continue
        factor = f"{math.exp(trial.value):.3g}x"
        drawing.dots.append((x(number), y(trial.value), 3, _PLAIN, f"{told}: {factor}"))
        if trial.value > best:
            path.append(f"H{x(number)}V{y(trial.value)}")
            best = trial.value
    drawing.path = " ".join([*path, f"H{x(last)}"])
    drawing.texts.append((_WIDTH / 2, height - 8, "middle", f"evaluations (1 to {len(trials)})"))
    return drawing


def graph_drawing(graph: SearchGraph, steps: Callable[[str], str], best: str) -> SearchDrawing:
    """Return states and moves, from the start at the left.

    Args:
        graph: The search's graph.
        steps: Function that returns a state's steps in words, by its key.
        best: Key of the best node; empty if the best state is not a node.
    """
    shown = _shown(graph, best)
    depth = _depths(graph, shown)
    columns: dict[int, list[str]] = {}
    for key in sorted(shown, key=lambda key: (-graph.nodes[key].value, graph.nodes[key].created)):
        columns.setdefault(depth[key], []).append(key)
    tallest = max(len(keys) for keys in columns.values())
    height = max(120, _TOP + _BOTTOM + 22 * tallest)
    step = (_WIDTH - 2 * _LEFT) / max(1, max(columns))
    place = {
        key: (
            round(_LEFT + step * column, 1),
            round(_TOP + (height - _TOP - _BOTTOM) * (row + 0.5) / len(keys), 1),
        )
        for column, keys in columns.items()
        for row, key in enumerate(keys)
    }
    drawing = SearchDrawing("states and moves", height)
    for key in sorted(shown, key=lambda key: graph.nodes[key].created):
        for move, action in sorted(graph.nodes[key].actions.items()):
            for child in sorted(action.visits, key=lambda child: graph.nodes[child].created):
                if child in shown:
                    drawing.lines.append((*place[key], *place[child], _LINE, move))
    for key, (x, y) in place.items():
        value = graph.nodes[key].value
        colour = _GOOD if value > 0 else _BAD if value < 0 else _PLAIN
        factor = f"{math.exp(value):.3g}x"
        drawing.dots.append((x, y, 9 if key == best else 5, colour, f"{factor}: {steps(key)}"))
        if key in (best, graph.start):
            drawing.texts.append((x, y - 12, "middle", factor))
    if left_out := len(graph.nodes) - len(shown):
        told = f"{left_out} slower states left out"
        drawing.texts.append((_WIDTH / 2, height - 8, "middle", told))
    return drawing


def _shown(graph: SearchGraph, best: str) -> set[str]:
    """Return the best nodes, and the nodes of one path from the start to each."""
    shown = {graph.start}
    for key in (*([best] if best else []), *(node.key for node in graph.ranked())):
        if len(shown) >= MOST_NODES:
            break
        while key not in shown:
            shown.add(key)
            key = graph.nodes[key].parents[0]
    return shown


def _depths(graph: SearchGraph, shown: set[str]) -> dict[str, int]:
    """Return the length of each node's longest path from the start."""
    parents = {key: [p for p in graph.nodes[key].parents if p in shown] for key in shown}
    depth: dict[str, int] = {}
    for key in TopologicalSorter(parents).static_order():
        depth[key] = max((depth[parent] + 1 for parent in parents[key]), default=0)
    return depth
