"""PUCT on made-up graphs whose best state is known."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.search.offline import Seen
from kernelgym_train.mcgs.proposing import Proposal
from kernelgym_train.mcgs.selection import mcgs
from kernelgym_train.mcgs.variant import MoveStep, Variant

Steps = tuple[tuple[str, int], ...]
"""(move, number of the proposal), in the order in which they were made."""
Moves = Callable[[Steps], Mapping[str, tuple[float, int]]]
"""(prior, number of proposals) by move, for the steps of a state."""


class MadeUp:
    """Proposes as many variants of each move as a function says."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves

    def priors(self, variant: Variant) -> tuple[tuple[str, float], ...]:
        moves = self._moves(steps_of(variant))
        total = sum(prior for prior, _ in moves.values())
        return tuple((name, prior / total) for name, (prior, _) in moves.items())

    def propose(self, variant: Variant, move: str, attempt: int) -> Proposal | None:
        if attempt >= self._moves(steps_of(variant))[move][1]:
            return None
        step = MoveStep(move, "", str(attempt))
        applied = (*variant.applied, step)
        made = dataclasses.replace(variant, source=repr(applied), applied=applied)
        return Proposal(step, made, "exact")


def steps_of(variant: Variant) -> Steps:
    return tuple((step.move, int(step.choice)) for step in variant.applied)


def walked(moves: Moves, value: Callable[[Steps], float], budget: int) -> list[Steps]:
    """Return the states that a search tries, in order."""
    proposer: Any = MadeUp(moves)
    seen = Seen(proposer, Variant("start", "triton"), 0)
    found: list[Steps] = []
    while len(found) < budget and (choice := mcgs(seen.around)) is not None:
        if not seen.repeats(choice):
            found.append(steps_of(choice.proposal.variant))
            seen.settle(choice, value(found[-1]))
    return found


@given(st.floats(0.05, 0.95), st.integers(1, 60), st.floats(0.1, 3.0), st.floats(-2.0, 0.0))
@settings(max_examples=25, deadline=None)
def test_move_with_a_spent_good_child_leaves_the_better_move_its_turn(
    prior: float, ways: int, good: float, bad: float
) -> None:
    """One way of A is good and has nothing below; all others are bad. B holds the optimum."""

    def moves(steps: Steps) -> Mapping[str, tuple[float, int]]:
        return {} if steps else {"A": (1.0 - prior, ways), "B": (prior, 3)}

    def value(steps: Steps) -> float:
        return 2.0 * good if steps[0][0] == "B" else good if steps[0][1] == 0 else bad

    tried = walked(moves, value, ways + 3)
    first = next(number for number, steps in enumerate(tried, 1) if steps[0][0] == "B")
    assert first <= 1 + math.ceil((1.0 - prior) / prior)
    assert len(tried) == ways + 3, "every proposal is made in the end"


@given(st.floats(0.2, 5.0), st.lists(st.floats(-1.0, 1.0), min_size=40, max_size=40))
@settings(max_examples=12, deadline=None)
def test_choices_do_not_depend_on_the_unit_of_values(unit: float, drawn: list[float]) -> None:
    def moves(steps: Steps) -> Mapping[str, tuple[float, int]]:
        return {"A": (0.6, 4), "B": (0.4, 4)} if len(steps) < 3 else {}

    def value(steps: Steps) -> float:
        return drawn[
            sum(7 * at + 3 * way + (move == "A") for at, (move, way) in enumerate(steps)) % 40
        ]

    # A power of two, so that no rounding breaks a tie.
    scale = 2.0 ** round(math.log2(unit))
    assert walked(moves, value, 40) == walked(moves, lambda steps: scale * value(steps), 40)


@given(st.integers(2, 5), st.floats(0.1, 0.9))
@settings(max_examples=12, deadline=None)
def test_longer_way_of_gains_is_followed_to_its_end(depth: int, prior: float) -> None:
    """Each further step of B gains; A and its many children gain nothing."""

    def moves(steps: Steps) -> Mapping[str, tuple[float, int]]:
        return {"A": (1.0 - prior, 6), "B": (prior, 1)} if len(steps) < depth else {}

    def value(steps: Steps) -> float:
        return sum(0.3 if move == "B" else -0.1 for move, _ in steps)

    tried = walked(moves, value, 40 * depth)
    best = (("B", 0),) * depth
    assert best in tried and tried.index(best) < 15 * depth


def test_spent_branch_is_not_walked_again() -> None:
    """All four states below A are known: what is left to try lies below B, which is slower."""

    def moves(steps: Steps) -> Mapping[str, tuple[float, int]]:
        if not steps:
            return {"A": (0.9, 1), "B": (0.1, 1)}
        return {"C": (1.0, 3)} if len(steps) == 1 else {}

    tried = walked(moves, lambda steps: 1.0 if steps[0][0] == "A" else -1.0, 99)
    assert len(tried) == 8 and sorted(set(tried)) == sorted(tried)


def test_nearer_of_two_equal_states_is_walked_first() -> None:
    """Two states of equal value have one proposal left each: one is a step from the start, the
    other two steps."""

    def moves(steps: Steps) -> Mapping[str, tuple[float, int]]:
        if not steps:
            return {"far": (0.5, 1), "near": (0.5, 1)}
        if steps == (("far", 0),):
            return {"on": (1.0, 1)}
        return {"last": (1.0, 1)} if steps[-1][0] in ("near", "on") else {}

    tried = walked(moves, lambda steps: 1.0 if steps[-1][0] in ("near", "on") else 0.0, 5)
    near, far = (
        tried.index((*way, ("last", 0))) for way in ([("near", 0)], [("far", 0), ("on", 0)])
    )
    assert near < far
