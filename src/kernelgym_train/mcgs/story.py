"""`way_lines` and `pull_request`: the way to the best, and the best as a proposed change.

Contract: both follow from the search's state and result alone. A step of the way names its moves in
words, the times of a call before and after by shape, and what was tried beside it. Keys of states
stand nowhere. Every text that comes from a kernel, a compiler, a model or a user is escaped, or
stands in a fence that it cannot end. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelgym_train.mcgs.episode import way_to
from kernelgym_train.mcgs.markdown import escaped, markdown_table
from kernelgym_train.mcgs.recipes import recipe_of
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.trials import SearchTrial
from kernelgym_train.mcgs.variant import MoveStep, steps_in_words

_MOST_BESIDE = 8  # trials that are told beside one step
_MOST_MESSAGE = 160  # characters
_NORMAL_95 = 1.96  # standard deviations that hold 95 % of a normal distribution


def way_lines(state: SearchState, best: str) -> list[str]:
    """Return the way from the start to the best as lines of Markdown.

    Args:
        state: The search.
        best: Key of the best.
    """
    if best == state.start:
        return ["No kernel was confirmed to be faster than the start.", *_beside(state, best, "")]
    lines: list[str] = []
    before = state.start
    for number, key in enumerate(way_to(state, best), 1):
        added, removed = _changes(state, before, key)
        lines += ["", f"### Step {number}: {escaped(_words(added, removed))}", ""]
        lines += _recipes(state, added)
        lines += [f"Made from {_made_from(number)}{_when(state, key)}.", ""]
        lines += _times(state, before, key)
        lines += _beside(state, before, key)
        before = key
    return lines[:-1] if lines and not lines[-1] else lines


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
    times = state.times.get(best, {})
    rows = []
    for shape in result["shapes"]:
        one, own = times.get(shape["name"], (0.0, 0.0))
        rows.append(
            (
                shape["name"],
                shape["role"],
                f"{one:.4g}" if one else "",
                f"{own:.4g}" if own else "",
                f"{shape['speedup']:.3g}" if shape["speedup"] else "",
                f"{shape['over_reference']:.3g}" if shape["over_reference"] else "",
            )
        )
    head = ("shape", "role", "start, ms", "now, ms", "over the start", "over the reference")
    busy = "yes (host_busy): other programs ran meanwhile" if result["host_busy"] else "no"
    machine = [(name, str(said)) for name, said in result["context"].items()]
    commands = [command] if command else []
    commands.append(f"kernelgym-train --backend mcgs --worker {control}")
    fence = "`" * (1 + max([2, *map(len, re.findall("`+", diff))]))
    return "\n".join(
        [
            f"# {escaped(result['task'])}: {_factor(result)} as fast",
            "",
            "## What changed",
            "",
            *(_recipes(state, steps) or ["The text, as the difference below shows.", ""]),
            f"Risk: {result['risk']}. The exported file was judged correct on inputs that no "
            "earlier verdict used.",
            "",
            "## Times",
            "",
            f"All shapes together: {_factor(result)} as fast as the start, by a comparison in "
            "turns with its 95 % interval.",
            "",
            *markdown_table(head, rows),
            "",
            f"Host busy: {busy}; in {result['busy_share']:.0%} of all verdicts and rounds.",
            "",
            "## Machine",
            "",
            *markdown_table(("what", "value"), machine),
            "",
            "## Repeat it",
            "",
            "The search, and the verdict on the best alone:" if command else "The verdict alone:",
            "",
            "```sh",
            *commands,
            "```",
            "",
            "## Change",
            "",
            f"{fence}diff",
            diff.rstrip("\n"),
            fence,
            "",
        ]
    )


def _factor(result: Mapping[str, Any]) -> str:
    low, high = result["speedup_low"], result["speedup_high"]
    return f"{result['speedup']:.3g} times ({low:.3g} to {high:.3g})"


def _changes(
    state: SearchState, before: str, key: str
) -> tuple[tuple[MoveStep, ...], tuple[MoveStep, ...]]:
    """Return the steps that a state has more than another, and those that it has less."""
    old, new = state.variants[before].applied, state.variants[key].applied
    return tuple(s for s in new if s not in old), tuple(s for s in old if s not in new)


def _words(added: Sequence[MoveStep], removed: Sequence[MoveStep]) -> str:
    told = [steps_in_words(added)] if added else []
    told += [f"without {steps_in_words(removed)}"] if removed else []
    return ", ".join(told) or "another text"


def _recipes(state: SearchState, steps: Sequence[MoveStep]) -> list[str]:
    """Return what each move does, as a list."""
    language = state.variants[state.start].language
    told = [
        f"- **{escaped(step.move)}** ({escaped(step.choice)}). "
        f"{escaped(recipe_of(step.move, language))}".rstrip()
        for step in steps
    ]
    return [*told, ""] if told else []


def _made_from(number: int) -> str:
    return "the start" if number == 1 else f"step {number - 1}"


def _when(state: SearchState, key: str) -> str:
    for number, trial in enumerate(state.evaluated, 1):
        if trial.proposed == key:
            return f", as evaluation {number} of {state.evaluations}"
    return ", after the search, by taking back steps that gain nothing"


def _times(state: SearchState, before: str, key: str) -> list[str]:
    """Return the times before and after a step by shape, with the speedup over the start."""
    value, reach = _measured(state, key)
    if value is None:
        return []
    lines = []
    if times := state.times.get(key):
        old = state.times.get(before, {})
        rows = []
        for name, (start_ms, own_ms) in times.items():
            # The start was timed beside this state, any other one in a round of its own.
            old_ms = start_ms if before == state.start else old.get(name, (0.0, 0.0))[1]
            gain = math.log(start_ms / own_ms)
            rows.append((name, _ms(old_ms, reach), _ms(own_ms, reach), _interval(gain, reach)))
        head = ("shape", "before, ms", "after, ms", "times as fast as the start")
        lines += [*markdown_table(head, rows), ""]
    told = _interval(value, reach)
    return [*lines, f"All shapes together: {told} times as fast as the start.", ""]


def _measured(state: SearchState, key: str) -> tuple[float | None, float]:
    """Return a state's value, and half of its 95 % interval.

    A best that lost steps when it was minimised has only its comparison with the start.
    """
    if (node := state.graph.nodes.get(key)) is not None:
        return node.value, _reach(state, key)
    for duel in reversed(state.duels):
        if duel.key == key and duel.first == state.start and duel.low > 0.0:
            return math.log(duel.ratio), math.log(duel.high / duel.low) / 2.0
    return None, 0.0


def _reach(state: SearchState, key: str) -> float:
    """Return half of the 95 % interval of a state's value."""
    return _NORMAL_95 * state.noise / math.sqrt(max(1, len(state.beside.get(key, ()))))


def _ms(ms: float, reach: float) -> str:
    if not ms:
        return "not timed"
    return f"{ms:.4g} ({ms * math.exp(-reach):.4g} to {ms * math.exp(reach):.4g})"


def _interval(value: float, reach: float) -> str:
    low, middle, high = (math.exp(value + at) for at in (-reach, 0.0, reach))
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def _beside(state: SearchState, node: str, chosen: str) -> list[str]:
    """Return what else was made from a state, and why it was not taken."""
    trials = [t for t in state.evaluated if t.node == node and t.proposed != chosen]
    if not trials:
        return []
    trials.sort(key=lambda trial: -_value(state, trial))
    lines = ["Tried beside it:" if chosen else "Tried from it:", ""]
    for trial in trials[:_MOST_BESIDE]:
        words = _words(*_changes(state, node, trial.proposed))
        lines.append(f"- {escaped(words)}: {escaped(_why(state, trial, chosen))}")
    if len(trials) > _MOST_BESIDE:
        lines.append(f"- {len(trials) - _MOST_BESIDE} more, all slower or failed")
    return [*lines, ""]


def _value(state: SearchState, trial: SearchTrial) -> float:
    node = state.graph.nodes.get(trial.key)
    return -math.inf if node is None else node.value


def _why(state: SearchState, trial: SearchTrial, chosen: str) -> str:
    """Return why a state was not taken."""
    if trial.proposed in state.untimed:
        return "correct, and could not be timed"
    value = _value(state, trial)
    if math.isinf(value):
        return f"{trial.status}: {trial.message[:_MOST_MESSAGE]}".rstrip(": ")
    told = f"{_interval(value, _reach(state, trial.key))} times as fast as the start"
    duels = [duel for duel in state.duels if duel.kind == "duel" and duel.key == trial.key]
    if duels and duels[-1].decided == "first":
        return f"{told}, and lost the comparison with the best at that time"
    if duels and duels[-1].decided == "neither":
        return f"{told}, and the comparison with the best at that time did not decide"
    if value <= 0.0:
        return f"{told}: no faster than the start"
    own = state.graph.nodes.get(chosen)
    slower = own is not None and value < own.value
    return f"{told}, {'slower' if slower else 'not compared further'}"
