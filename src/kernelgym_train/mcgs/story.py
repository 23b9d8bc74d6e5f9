"""`way_of` and `pull_request`: the path to the best kernel, and the best as a proposed change.

Contract: both follow from the search's state and result alone. A step of the way names its moves in
words, the times of a call before and after by shape, and what was tried beside it. Keys of states
stand nowhere. Every text that comes from a kernel, a compiler, a model or a user is escaped, or
stands in a fence that it cannot end. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelgym_train.mcgs.episode import way_to
from kernelgym_train.mcgs.recipes import recipe_of
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.templates import filled
from kernelgym_train.mcgs.trials import SearchTrial
from kernelgym_train.mcgs.variant import MoveStep, steps_in_words

_MOST_MESSAGE = 160  # characters


def way_of(state: SearchState, best: str) -> list[dict[str, Any]]:
    """Return the steps from the start to the best, as data for the template ``trace.md.j2``.

    Args:
        state: The search.
        best: Key of the best.
    """
    found = []
    before = state.start
    for key in way_to(state, best) if best != state.start else ():
        added, removed = _changes(state, before, key)
        value, reach = _measured(state, key)
        step = {"words": _words(added, removed), "added": _recipes(state, added)}
        step |= {"when": _when(state, key), "beside": tried(state, before, key)}
        step["rows"] = [] if value is None else _times(state, before, key, reach)
        step["told"] = "" if value is None else _interval(value, reach)
        found.append(step)
        before = key
    return found


def pull_request(
    state: SearchState, result: Mapping[str, Any], diff: str, command: str, control: str
) -> str:
    """Return the best as a proposed change, in Markdown.

    Args:
        state: The search.
        result: The content of ``result.json``, whose best is not the start.
        diff: Difference of the user's own file.
        command: Command that repeats the search; empty if it was begun from Python.
        control: Path of the best's ``control.json``.
    """
    best = result["best"]["state"]
    steps = state.variants[best].applied
    return filled(
        "pull_request.md.j2",
        result=result,
        steps=_recipes(state, steps),
        times=state.times.get(best, {}),
        machine=[(name, str(said)) for name, said in result["context"].items()],
        command=command,
        control=control,
        diff=diff,
    )


def _changes(
    state: SearchState, before: str, key: str
) -> tuple[tuple[MoveStep, ...], tuple[MoveStep, ...]]:
    """Return the steps that one state has beyond another, and those that it lacks."""
    old, new = state.variants[before].applied, state.variants[key].applied
    return tuple(s for s in new if s not in old), tuple(s for s in old if s not in new)


def _words(added: Sequence[MoveStep], removed: Sequence[MoveStep]) -> str:
    told = [steps_in_words(added)] if added else []
    told += [f"without {steps_in_words(removed)}"] if removed else []
    return ", ".join(told) or "another text"


def _recipes(state: SearchState, steps: Sequence[MoveStep]) -> list[tuple[MoveStep, str]]:
    language = state.variants[state.start].language
    return [(step, recipe_of(step.move, language)) for step in steps]


def _when(state: SearchState, key: str) -> str:
    for number, trial in enumerate(state.evaluated, 1):
        if trial.proposed == key:
            return f", as evaluation {number} of {state.evaluations}"
    return ", after the search, by taking back steps that gain nothing"


def _times(state: SearchState, before: str, key: str, reach: float) -> list[tuple[str, ...]]:
    """Return (before, after) milliseconds of a call for a step, by shape."""
    rows: list[tuple[str, ...]] = []
    old = state.times.get(before, {})
    for name, (start_ms, own_ms) in state.times.get(key, {}).items():
        # The start was timed beside this state, any other one in a round of its own.
        old_ms = start_ms if before == state.start else old.get(name, (0.0, 0.0))[1]
        gain = math.log(start_ms / own_ms)
        rows.append((name, _ms(old_ms, reach), _ms(own_ms, reach), _interval(gain, reach)))
    return rows


def _measured(state: SearchState, key: str) -> tuple[float | None, float]:
    """Return a state's value, and half of its 95 % interval.

    A best that lost steps when it was minimised has only its comparison with the start.
    """
    if (node := state.graph.nodes.get(key)) is not None:
        return node.value, state.reach(key)
    for duel in reversed(state.duels):
        if duel.key == key and duel.first == state.start and duel.low > 0.0:
            return math.log(duel.ratio), math.log(duel.high / duel.low) / 2.0
    return None, 0.0


def _ms(ms: float, reach: float) -> str:
    if not ms:
        return "not timed"
    return f"{ms:.4g} ({ms * math.exp(-reach):.4g} to {ms * math.exp(reach):.4g})"


def _interval(value: float, reach: float) -> str:
    low, middle, high = (math.exp(value + at) for at in (-reach, 0.0, reach))
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def tried(state: SearchState, node: str, chosen: str = "") -> list[tuple[str, str]]:
    """Return sentences on the other changes tried from a state, with outcomes; the best first."""
    trials = [t for t in state.evaluated if t.node == node and t.proposed != chosen]
    trials.sort(key=lambda trial: -_value(state, trial))
    return [
        (_words(*_changes(state, node, trial.proposed)), _why(state, trial, chosen))
        for trial in trials
    ]


def _value(state: SearchState, trial: SearchTrial) -> float:
    node = state.graph.nodes.get(trial.key)
    return -math.inf if node is None or trial.key in state.graph.failed else node.value


def _why(state: SearchState, trial: SearchTrial, chosen: str) -> str:
    """Return the reason why a judged state is not on the way to the best."""
    if trial.proposed in state.untimed:
        return "correct, but could not be timed"
    value = _value(state, trial)
    if math.isinf(value):
        return f"{trial.status}: {trial.message[:_MOST_MESSAGE]}".rstrip(": ")
    told = f"{_interval(value, state.reach(trial.key))} times as fast as the start"
    duels = [duel for duel in state.duels if duel.kind == "duel" and duel.key == trial.key]
    if duels and duels[-1].decided == "first":
        return f"{told}, and lost the comparison with the best at that time"
    if duels and duels[-1].decided == "neither":
        return f"{told}, and the comparison with the best at that time was undecided"
    if value <= 0.0:
        return f"{told}: no faster than the start"
    own = state.graph.nodes.get(chosen)
    slower = own is not None and value < own.value
    return f"{told}, {'slower' if slower else 'not compared further'}"
