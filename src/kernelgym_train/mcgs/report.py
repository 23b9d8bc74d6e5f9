"""`trace` and `report`: a search told to a reader, as Markdown and as one HTML file.

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
"""Headings and rows."""
_COMPARED_WITH = {
    "duel": "the best so far",
    "confirmed": "the start",
    "reduced": "the best, which has one step more",
}


def trace(state: SearchState, title: str, best: str) -> str:
    """Return the way to the best, evaluations, failures and comparisons as Markdown.

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
    best = result["best"]["state"]
    return filled(
        "report.html.j2",
        result=result,
        sentence=sentence,
        summary=_summary(state, result),
        gain=gain_chart(state),
        graph=graph_drawing(state.graph, state.steps, best if best in state.graph.nodes else ""),
        tables={
            "Comparisons": _comparisons(state),
            "Moves": _moves(state),
            "Failures": _failures(state),
            "Correct, not timed": _untimed(state),
            "Time": _times(state),
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
    """Return a state's speedup over the start, as measured by now, or its status."""
    node = state.graph.nodes.get(trial.key)
    return trial.status if node is None else f"{math.exp(node.value):.3g}"


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
            duel.decided,
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


def _times(state: SearchState) -> _Table:
    seconds = {
        "the whole search": state.seconds,
        "judging the start": state.starts_s,
        "builds": sum(trial.build_s for trial in state.evaluated),
        "verdicts, without builds": sum(trial.judge_s for trial in state.evaluated),
        "timing beside the start": sum(trial.round_s for trial in state.evaluated),
        "comparisons": sum(duel.took_s for duel in state.duels),
    }
    return ("part", "seconds"), [(name, f"{taken:.1f}") for name, taken in seconds.items()]


def _summary(state: SearchState, result: Mapping[str, Any]) -> list[tuple[str, str]]:
    over = result["over_reference"]
    rows = [
        ("correct means", result["correct_means"]),
        ("speedup over the start", _interval(result)),
        ("speedup over the reference", _interval(over)),
        ("evaluations", str(result["evaluations"])),
        ("proposals refused as known", str(result["duplicates"])),
        ("proposals left out as weak", str(result["pruned"])),
        ("seconds", f"{result['seconds']:.0f}"),
        ("ended by", result["stopped"]),
        ("one measurement of a speedup is off by", f"{math.expm1(result['noise']):.1%}"),
        ("host_busy", _busy(result)),
        ("risk of the best", result["risk"]),
    ]
    start = state.variants[state.start]
    if holds_cpp(start.language, start.source):
        rows += [("loop not read", str(each)) for each in unread_loops(file_of(start).cpp)]
    for name, shares in (result.get("counters") or {}).items():
        told = ", ".join(f"{each} {share:.0%}" for each, share in shares.items())
        rows.append((f"limits of the {name} by counters", told))
    if asked := result.get("writer"):
        usd = "" if asked["usd"] is None else f", {asked['usd']:.4f} USD"
        outcomes = ", ".join(f"{count} {name}" for name, count in asked["outcomes"].items())
        rows.append(("kernels asked for", f"{outcomes}; {asked['tokens']} tokens{usd}"))
        if asked["closed"]:
            rows.append(("no more were asked for", asked["closed"]))
    if without := result["without_approximate"]:
        rows.append(("without approximate moves", _interval(without)))
    return rows + [(f"context: {name}", str(said)) for name, said in result["context"].items()]


def _busy(result: Mapping[str, Any]) -> str:
    """Return whether the host was busy, in words."""
    told = "yes, other programs ran while it was timed" if result["host_busy"] else "no"
    return f"{told}; in {result['busy_share']:.0%} of all verdicts and rounds"


def _interval(data: Mapping[str, Any]) -> str:
    if not data["speedup"]:
        return "not measured"
    low, high = data["speedup_low"], data["speedup_high"]
    return f"{data['speedup']:.3g} (95 %: {low:.3g} to {high:.3g})"
