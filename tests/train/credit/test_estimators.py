"""Estimators: every one worked by hand, and what holds for all of them."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernelgym.errors import UnknownName
from kernelgym_train.credit.estimators import ESTIMATORS, STD_EPSILON, advantages, has_signal

NAMES = sorted(ESTIMATORS)
LEAVE_ONE_OUT = ("rloo", "trloo")
SCALED = ("grpo", "kevin", "turn_group")

estimators = st.sampled_from(NAMES)
# Sixteenths: sums and shifts of them are exact, so that what should be equal is.
values = st.integers(-64, 64).map(lambda n: n / 16)
groups = st.lists(st.lists(values, min_size=1, max_size=4), min_size=1, max_size=6)


def close(one: object, other: object) -> bool:
    return one == pytest.approx(other, abs=1e-6)


def all_close(one, other) -> bool:
    return len(one) == len(other) and all(close(a, b) for a, b in zip(one, other, strict=True))


# Three trajectories; the third was right at once and played one turn.
RAGGED = ((1.0, 2.0), (3.0, 6.0), (8.0,))


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        # Turn 1: 1 - (3+8)/2, 3 - (1+8)/2, 8 - (1+3)/2. Turn 2: 2 - 6, 6 - 2.
        ("trloo", ((-4.5, -4.0), (-1.5, 4.0), (6.0,))),
        # Turn 1: mean 4, deviation sqrt((9+1+16)/2); turn 2: mean 4, deviation sqrt(8).
        (
            "turn_group",
            (
                (-3 / (13**0.5 + 1e-4), -2 / (8**0.5 + 1e-4)),
                (-1 / (13**0.5 + 1e-4), 2 / (8**0.5 + 1e-4)),
                (4 / (13**0.5 + 1e-4),),
            ),
        ),
        # All five: mean 4, deviation sqrt((9+4+1+4+16)/4).
        (
            "kevin",
            (
                (-3 / (8.5**0.5 + 1e-4), -2 / (8.5**0.5 + 1e-4)),
                (-1 / (8.5**0.5 + 1e-4), 2 / (8.5**0.5 + 1e-4)),
                (4 / (8.5**0.5 + 1e-4),),
            ),
        ),
        # First turns only, given to every turn.
        ("rloo", ((-4.5, -4.5), (-1.5, -1.5), (6.0,))),
        ("dr_grpo", ((-3.0, -3.0), (-1.0, -1.0), (4.0,))),
        (
            "grpo",
            (
                (-3 / (13**0.5 + 1e-4),) * 2,
                (-1 / (13**0.5 + 1e-4),) * 2,
                (4 / (13**0.5 + 1e-4),),
            ),
        ),
    ],
)
def test_by_hand(name: str, by_hand) -> None:
    assert all_close(advantages(name, RAGGED), by_hand)


def test_every_estimator_is_worked_by_hand() -> None:
    (mark,) = test_by_hand.pytestmark
    assert sorted(case[0] for case in mark.args[1]) == NAMES


def test_kevin_calls_early_turns_good_and_late_ones_bad() -> None:
    """Eight times the same: scores (0.3, 0.3) at gamma 0.4."""
    same = ((0.42, 0.3),) * 8
    found = advantages("kevin", same)
    assert {tuple(round(value, 2) for value in turns) for turns in found} == {(0.97, -0.97)}
    assert not has_signal("kevin", same)
    for name in set(NAMES) - {"kevin"}:
        assert set(advantages(name, same)) == {(0.0, 0.0)}


def test_signal_is_where_an_estimator_looks_for_it() -> None:
    later = ((1.0, 0.0), (1.0, 1.0))  # equal from the first turn on, not from the second
    for name, estimator in ESTIMATORS.items():
        assert has_signal(name, later) == (estimator.scope != "trajectory")
    # Nobody to compare the second turn with.
    assert not any(has_signal(name, ((1.0, 0.3), (1.0,))) for name in NAMES)
    # 0.1 + 0.2 and 0.3 differ by rounding.
    assert not any(has_signal(name, ((0.1 + 0.2,), (0.3,))) for name in NAMES)
    assert not any(has_signal(name, ()) for name in NAMES)


def test_a_turn_that_only_one_trajectory_reached_is_compared_with_nothing() -> None:
    returns = ((1.0, 5.0, 9.0), (2.0, 1.0), (3.0,))
    for name in ("trloo", "turn_group"):
        assert advantages(name, returns)[0][2] == 0.0
        assert advantages(name, returns)[0][1] != 0.0


@pytest.mark.parametrize("name", NAMES)
def test_a_lone_answer_has_no_baseline(name: str) -> None:
    assert advantages(name, ((3.0,),)) == ((0.0,),)
    assert advantages(name, ()) == ()


@pytest.mark.parametrize("name", NAMES)
def test_returns_that_are_not_numbers_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="finite"):
        advantages(name, ((1.0,), (math.nan,)))


def test_unknown_estimators_are_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="did you mean trloo"):
        advantages("troo", ((1.0,),))


@given(estimators, groups)
def test_advantages_have_the_shape_of_the_returns(name: str, returns) -> None:
    found = advantages(name, returns)
    assert [len(turns) for turns in found] == [len(turns) for turns in returns]
    assert all(math.isfinite(value) for turns in found for value in turns)


@given(estimators, groups, values)
def test_a_shift_of_all_returns_changes_nothing(name: str, returns, shift: float) -> None:
    moved = [[value + shift for value in turns] for turns in returns]
    assert all_close(advantages(name, moved), advantages(name, returns))
    assert has_signal(name, moved) == has_signal(name, returns)


@given(estimators, groups, st.randoms(use_true_random=False))
def test_the_order_of_trajectories_changes_no_digit(name: str, returns, random) -> None:
    order = list(range(len(returns)))
    random.shuffle(order)
    found = advantages(name, returns)
    assert advantages(name, [returns[row] for row in order]) == tuple(found[row] for row in order)


@given(estimators, groups, st.floats(0.25, 8.0))
def test_scaling_scales_what_is_not_divided_by_the_deviation(name, returns, factor: float) -> None:
    scaled = advantages(name, [[value * factor for value in turns] for turns in returns])
    found = advantages(name, returns)
    for turns, scaled_turns in zip(found, scaled, strict=True):
        for value, after in zip(turns, scaled_turns, strict=True):
            if name in SCALED:
                # Up to the epsilon: returns here differ by a sixteenth at least, so that the
                # smallest deviation is above 0.01.
                assert after == pytest.approx(value, rel=0.04, abs=1e-9)
            else:
                assert after == pytest.approx(value * factor, abs=1e-9)


@given(st.sampled_from(LEAVE_ONE_OUT), groups, st.data())
def test_a_return_has_no_part_in_its_own_baseline(name: str, returns, data) -> None:
    row = data.draw(st.integers(0, len(returns) - 1))
    turn = data.draw(st.integers(0, len(returns[row]) - 1)) if name == "trloo" else 0
    others = [turns[turn] for i, turns in enumerate(returns) if i != row and turn < len(turns)]
    assume(len(others) > 0)
    other = data.draw(values)
    changed = [list(turns) for turns in returns]
    changed[row][turn] = other

    def baseline(given) -> float:
        return given[row][turn] - advantages(name, given)[row][turn]

    assert baseline(changed) == pytest.approx(baseline(returns), abs=1e-9)
    assert baseline(returns) == pytest.approx(statistics.fmean(others), abs=1e-9)


@given(st.sampled_from(sorted(set(NAMES) - set(LEAVE_ONE_OUT))), groups)
def test_a_mean_baseline_leaves_a_sum_of_zero(name: str, returns) -> None:
    found = advantages(name, returns)
    if ESTIMATORS[name].scope == "group":
        sums = [math.fsum(value for turns in found for value in turns)]
    elif ESTIMATORS[name].scope == "trajectory":
        sums = [math.fsum(turns[0] for turns in found)]
    else:
        longest = max(map(len, found))
        sums = [math.fsum(t[i] for t in found if i < len(t)) for i in range(longest)]
    assert sums == pytest.approx([0.0] * len(sums), abs=1e-9)


@given(groups)
def test_leaving_one_out_is_centring_times_n_over_n_minus_one(returns) -> None:
    assume(len(returns) > 1)
    n = len(returns)
    for out, centred in zip(
        advantages("rloo", returns), advantages("dr_grpo", returns), strict=True
    ):
        assert out[0] == pytest.approx(centred[0] * n / (n - 1), abs=1e-9)


@given(groups)
def test_deviation_only_changes_the_length(returns) -> None:
    first = [turns[0] for turns in returns]
    assume(len(set(first)) > 1)
    deviation = statistics.stdev(first) + STD_EPSILON
    for scaled, centred in zip(
        advantages("grpo", returns), advantages("dr_grpo", returns), strict=True
    ):
        assert scaled[0] == pytest.approx(centred[0] / deviation, abs=1e-9)


@given(estimators, st.lists(values, min_size=1, max_size=4), st.integers(1, 6))
def test_identical_trajectories_teach_nothing(name: str, turns, count: int) -> None:
    returns = [turns] * count
    assert not has_signal(name, returns)
    if name != "kevin":
        assert {value for row in advantages(name, returns) for value in row} == {0.0}


@given(estimators, groups)
def test_without_signal_there_are_no_advantages_but_kevins(name: str, returns) -> None:
    if name != "kevin":
        nonzero = any(value for turns in advantages(name, returns) for value in turns)
        assert nonzero == has_signal(name, returns)


@given(estimators, groups)
def test_better_is_never_credited_less(name: str, returns) -> None:
    """Among what is compared, the advantages are in the order of the returns."""
    found = advantages(name, returns)
    scope = ESTIMATORS[name].scope
    flat = [
        (0 if scope == "group" else turn, returns[row][turn], found[row][turn])
        for row in range(len(returns))
        for turn in range(1 if scope == "trajectory" else len(returns[row]))
    ]
    for block, value, advantage in flat:
        for other_block, other_value, other_advantage in flat:
            if block == other_block and value < other_value:
                assert advantage < other_advantage
