"""What docs/credit.md says of each estimator's bias, by going through every outcome.

A policy that tosses coins: at turn 1 an answer is right with chance `first`, and the episode ends
then; otherwise turn 2 is right with chance `second`. Scores are 1 and 0. With few trajectories
every outcome of a group can be listed, so expected gradients are exact.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from kernelgym_train.credit.estimators import ESTIMATORS, advantages

GAMMA = 0.5
CHANCES = [(0.2, 0.4), (0.5, 0.5), (0.7, 0.1), (0.05, 0.9)]

Episode = tuple[bool, ...]
EPISODES: tuple[Episode, ...] = ((True,), (False, True), (False, False))


def chance_of(episode: Episode, first: float, second: float) -> float:
    if episode[0]:
        return first
    return (1 - first) * (second if episode[1] else 1 - second)


def returns_of(episode: Episode) -> tuple[float, ...]:
    scores = [float(right) for right in episode]
    # Right at turn 1 of 2 is absorbing: its score is paid twice.
    return (1 + GAMMA,) if episode[0] else (scores[0] + GAMMA * scores[1], scores[1])


def slope(right: bool, chance: float) -> float:
    """Return the derivative of the log-probability of a toss, by its logit."""
    return 1 - chance if right else -chance


def expected(name: str, first: float, second: float, size: int) -> tuple[float, float]:
    """Return an estimator's expected gradient for both logits, per trajectory."""
    total = [0.0, 0.0]
    for group in itertools.product(EPISODES, repeat=size):
        chance = math.prod(chance_of(episode, first, second) for episode in group)
        credit = advantages(name, [returns_of(episode) for episode in group])
        for episode, turns in zip(group, credit, strict=True):
            for turn, (right, advantage) in enumerate(zip(episode, turns, strict=True)):
                total[turn] += chance * advantage * slope(right, (first, second)[turn])
    return total[0] / size, total[1] / size


def true(first: float, second: float) -> tuple[float, float]:
    """Return the gradient of each turn's own expected return, weighted by reaching the turn."""
    at_first = first * (1 - first) * ((1 + GAMMA) - GAMMA * second)
    at_second = (1 - first) * second * (1 - second)
    return at_first, at_second


@pytest.mark.parametrize(("first", "second"), CHANCES)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_trloo_has_no_bias_but_for_lone_answers(first: float, second: float, size: int) -> None:
    """A turn that no other trajectory reached is not learned from; nothing else is lost."""
    accompanied = 1 - first ** (size - 1)
    at_first, at_second = true(first, second)
    assert expected("trloo", first, second, size) == pytest.approx(
        (at_first, at_second * accompanied)
    )


@pytest.mark.parametrize(("first", "second"), CHANCES)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_rloo_has_none_for_the_return_from_the_first_turn(first, second, size) -> None:
    at_first, at_second = true(first, second)
    # What turn 2 earns counts gamma in that return.
    wanted = (at_first, GAMMA * at_second)
    assert expected("rloo", first, second, size) == pytest.approx(wanted)
    shrunk = tuple(value * (size - 1) / size for value in wanted)
    assert expected("dr_grpo", first, second, size) == pytest.approx(shrunk)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_the_deviation_makes_the_step_depend_on_how_hard_a_problem_is(name: str) -> None:
    """What is expected of turn 1 is the true gradient times a factor: which one?"""
    problems = [*CHANCES, (0.5, 0.02), (0.9, 0.5)]
    factors = [expected(name, *chances, 3)[0] / true(*chances)[0] for chances in problems]
    if ESTIMATORS[name].against == "mean_and_deviation":
        assert max(factors) > 1.15 * min(factors)
    else:
        assert factors == pytest.approx([factors[0]] * len(factors))


def test_the_table_of_the_documentation() -> None:
    """Factors of both turns' gradients in groups of six, for three problems."""
    text = (Path(__file__).parents[3] / "docs" / "credit.md").read_text()
    chances = [(0.02, 0.5), (0.5, 0.5), (0.9, 0.5)]
    for name in ESTIMATORS:
        pairs = [(expected(name, *each, 6), true(*each)) for each in chances]
        cells = " | ".join(
            f"{found[0] / real[0]:.2f}, {found[1] / real[1]:.2f}" for found, real in pairs
        )
        assert f"| `{name}` | {cells} |" in text


def test_kevin_credits_the_turn_index() -> None:
    """Turn 2 cannot change anything here, and turn 1 is never right; kevin compares them."""
    same = ((0.42, 0.3), (0.42, 0.3), (0.42, 0.3), (0.42, 0.32))
    kevin, turn_group = advantages("kevin", same), advantages("turn_group", same)
    assert all(turns[0] > 0.5 and turns[1] < -0.5 for turns in kevin)
    assert kevin[3][1] < 0 < turn_group[3][1]  # the best second turn of all
