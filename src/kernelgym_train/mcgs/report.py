"""`trace` and `report`: description of a search in Markdown, and as one HTML file.

Contract: both follow from the search's state and result alone. Every text that comes from a kernel,
a compiler, a model or a user is escaped: none can end a table's cell or begin markup. The HTML has
no scripts and needs no other file. Pure.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.cpp.loops import unread_loops
from kernelgym_train.mcgs.drawing import gain_chart, graph_drawing
from kernelgym_train.mcgs.source_forms import holds_cpp
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.story import tried, way_of
from kernelgym_train.mcgs.templates import filled
from kernelgym_train.mcgs.trials import SearchTrial

_Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Headings and rows of a table."""
_COMPARED_WITH = {
    "duel": "the best so far",
    "confirmed": "the start",
    "reduced": "the best, from which one step was removed",
}


def trace(state: SearchState, title: str, best: str) -> str:
    """Return the path to the best, evaluations, failures and comparisons as Markdown.

    Args:
        state: The search.
        title: Heading: the task and its result.
        best: Key of the best.
    """
    return filled(
        "trace.md.j2",
        title=title,
        state=state,
        way=way_of(state, best),
        beside=tried(state, state.start),
        tables={
            "Evaluations": _evaluations(state),
            "Failures": _failures(state),
            "Correct, not timed": _untimed(state),
            "Comparisons": _comparisons(state),
        },
    )


def report(state: SearchState, result: Mapping[str, Any], sentence: str, diff: str) -> str:
    """Return the search as an HTML page.

    Args:
        state: The search.
        result: The content of ``result.json``.
        sentence: The result in one sentence.
        diff: Difference of the best from the start; empty where the start is the best.
    """
    best, start = result["best"]["state"], state.variants[state.start]
    return filled(
        "report.html.j2",
        result=result,
        sentence=sentence,
        state=state,
        noise=math.expm1(result["noise"]),
        unread=unread_loops(file_of(start).cpp) if holds_cpp(start.language, start.source) else (),
        gain=gain_chart(state),
        graph=graph_drawing(state.graph, state.steps, best if best in state.graph.nodes else ""),
        tables={
            "Comparisons": _comparisons(state),
            "Moves": _moves(state),
            "Failures": _failures(state),
            "Correct, not timed": _untimed(state),
        },
        diff=diff,
    )


def _evaluations(state: SearchState) -> _Table:
    rows = [
        (
            str(number),
            f"{trial.seconds:.0f}",
            _speedup(state, trial),
            state.steps(trial.proposed),
            state.risks[trial.proposed],
        )
        for number, trial in enumerate(state.evaluated, 1)
    ]
    return ("evaluation", "seconds", "speedup over the start", "steps", "risk"), rows


def _speedup(state: SearchState, trial: SearchTrial) -> str:
    """Return a state's speedup over the start as currently measured, or its status without one."""
    node = state.graph.nodes.get(trial.key)
    refused = trial.key in state.graph.failed
    return trial.status if node is None or refused else f"{math.exp(node.value):.3g}"


def _failures(state: SearchState) -> _Table:
    rows = [
        (str(number), trial.status, state.steps(trial.proposed), trial.message)
        for number, trial in enumerate(state.evaluated, 1)
        if trial.value is None and trial.status != "correct"
    ]
    return ("evaluation", "status", "steps", "message"), rows


def _untimed(state: SearchState) -> _Table:
    rows = [
        (str(number), str(state.untimed[trial.proposed]), state.steps(trial.proposed))
        for number, trial in enumerate(state.evaluated, 1)
        if trial.proposed in state.untimed
    ]
    return ("evaluation", "attempts at timing it", "steps"), rows


def _comparisons(state: SearchState) -> _Table:
    rows = [
        (
            str(duel.after),
            state.steps(duel.key),
            _COMPARED_WITH[duel.kind],
            f"{duel.ratio:.3g} ({duel.low:.3g} to {duel.high:.3g})",
            str(duel.rounds),
            {"first": _COMPARED_WITH[duel.kind], "second": "the kernel"}.get(
                duel.decided, "undecided"
            ),
        )
        for duel in state.duels
    ]
    return ("after evaluation", "kernel", "with", "times as fast", "rounds", "faster"), rows


def _moves(state: SearchState) -> _Table:
    """Return each move's evaluations, gains over the state it changed, and failures."""
    tried, failed, better = (collections.Counter[str]() for _ in range(3))
    values = {node.key: node.value for node in state.graph.nodes.values()}
    for trial in state.evaluated:
        tried[trial.move] += 1
        failed[trial.move] += trial.value is None and trial.status != "correct"
        better[trial.move] += trial.value is not None and trial.value > values[trial.node]
    rows = [
        (move, str(tried[move]), str(better[move]), str(failed[move])) for move in sorted(tried)
    ]
    return ("move", "evaluations", "faster than what it changed", "failures"), rows
