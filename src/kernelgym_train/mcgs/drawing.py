"""Drawings of a report, as SVG: gain by evaluation, and graph.

Contract: each function returns one ``<svg>`` element that needs no other file and no script. Every
text in it is escaped here. Pure.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

from kernelgym_train.mcgs.graph import Graph
from kernelgym_train.mcgs.state import SearchState

__all__ = ["MOST_NODES", "gain_chart", "graph_drawing"]

MOST_NODES = 80
"""Nodes that a drawing shows; of a larger graph the best, with what leads to them."""
_WIDTH = 960
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 40
_GOOD, _BAD, _PLAIN, _LINE = "#1a7f37", "#cf222e", "#57606a", "#d0d7de"


def gain_chart(state: SearchState) -> str:
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
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * number / last

    def y(value: float) -> float:
        return _TOP + (height - _TOP - _BOTTOM) * (high - value) / (high - low)

    parts: list[str] = []
    for value in sorted({low + (high - low) * part / 5 for part in range(6)} | {0.0}):
        parts.append(_segment(_LEFT, y(value), _WIDTH - _RIGHT, y(value), _LINE))
        parts.append(_text(_LEFT - 6, y(value) + 4, f"{math.exp(value):.3g}x", "end"))
    for duel in state.duels:
        if duel.kind == "duel":
            colour, at = _GOOD if duel.decided == "second" else _LINE, x(duel.after)
            told = f"times as fast: {duel.ratio:.3g} ({duel.low:.3g} to {duel.high:.3g})"
            parts.append(_segment(at, _TOP, at, height - _BOTTOM, colour, told))
    best, path, dots = 0.0, [f"M{x(0):.1f},{y(0.0):.1f}"], list[str]()
    for number, trial in enumerate(trials, 1):
        told = f"{number}: {state.steps(trial.proposed)}"
        if trial.value is None:
            dots.append(_cross(x(number), height - _BOTTOM, f"{told}: {trial.status}"))
            continue
        factor = f"{math.exp(trial.value):.3g}x"
        dots.append(_dot(x(number), y(trial.value), 3, _PLAIN, f"{told}: {factor}"))
        if trial.value > best:
            path.append(f"H{x(number):.1f}V{y(trial.value):.1f}")
            best = trial.value
    path.append(f"H{x(last):.1f}")
    parts.append(f'<path d="{" ".join(path)}" fill="none" stroke="{_GOOD}" stroke-width="2"/>')
    parts += dots
    parts.append(_text(_WIDTH / 2, height - 8, f"evaluations (1 to {len(trials)})", "middle"))
    return _svg(height, "speedup over the start by evaluation", parts)


def graph_drawing(graph: Graph, steps: Callable[[str], str], best: str) -> str:
    """Return states and moves, from the start at the left.

    Args:
        graph: The search's graph.
        steps: Function that returns a state's steps in words, by its key.
        best: Key of the best node; empty if the best state is no node.
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
        key: (_LEFT + step * column, _TOP + (height - _TOP - _BOTTOM) * (row + 0.5) / len(keys))
        for column, keys in columns.items()
        for row, key in enumerate(keys)
    }
    parts: list[str] = []
    for key in sorted(shown, key=lambda key: graph.nodes[key].created):
        for move, action in sorted(graph.nodes[key].actions.items()):
            for child in sorted(action.visits, key=lambda child: graph.nodes[child].created):
                if child in shown:
                    (x1, y1), (x2, y2) = place[key], place[child]
                    parts.append(_segment(x1, y1, x2, y2, _LINE, move))
    for key, (x, y) in place.items():
        value = graph.nodes[key].value
        colour = _GOOD if value > 0 else _BAD if value < 0 else _PLAIN
        told = f"{math.exp(value):.3g}x: {steps(key)}"
        parts.append(_dot(x, y, 9 if key == best else 5, colour, told))
        if key in (best, graph.start):
            parts.append(_text(x, y - 12, f"{math.exp(value):.3g}x", "middle"))
    left_out = len(graph.nodes) - len(shown)
    if left_out:
        parts.append(_text(_WIDTH / 2, height - 8, f"{left_out} slower states left out", "middle"))
    return _svg(height, "states and moves", parts)


def _shown(graph: Graph, best: str) -> set[str]:
    """Return the best nodes, and one way from the start to each."""
    shown = {graph.start}
    for key in (*([best] if best else []), *(node.key for node in graph.ranked())):
        if len(shown) >= MOST_NODES:
            break
        while key not in shown:
            shown.add(key)
            key = graph.nodes[key].parents[0]
    return shown


def _depths(graph: Graph, shown: set[str]) -> dict[str, int]:
    """Return the length of each node's longest way from the start."""
    depth: dict[str, int] = {}
    left = sorted(shown, key=lambda key: graph.nodes[key].created)
    while left:
        waiting = []
        for key in left:
            parents = [parent for parent in graph.nodes[key].parents if parent in shown]
            if all(parent in depth for parent in parents):
                depth[key] = max((depth[parent] + 1 for parent in parents), default=0)
            else:
                waiting.append(key)
        left = waiting
    return depth


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {_WIDTH} {height:.0f}"'
    return f'<svg {box} role="img" aria-label="{html.escape(label)}">{"".join(parts)}</svg>'


def _segment(x1: float, y1: float, x2: float, y2: float, colour: str, told: str = "") -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="1.5">{_title(told)}</line>'


def _dot(x: float, y: float, radius: float, colour: str, told: str) -> str:
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"'
    return f'<circle {place} fill="{colour}">{_title(told)}</circle>'


def _cross(x: float, y: float, told: str) -> str:
    path = f"M{x - 4:.1f},{y - 4:.1f}l8,8m0,-8l-8,8"
    return f'<path d="{path}" stroke="{_BAD}" fill="none">{_title(told)}</path>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="12" fill="{_PLAIN}">{html.escape(text)}</text>'


def _title(told: str) -> str:
    return f"<title>{html.escape(told)}</title>" if told else ""
