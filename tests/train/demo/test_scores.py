"""Rates and intervals of held-out episodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.types import Status, Verdict
from kernelgym_train.demo.intervals import cluster_rate
from kernelgym_train.demo.scores import failure_of, scores_of
from support.demo_rollouts import CHEAT, RIGHT, WRONG, rollout, turn

COUNTS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8)).map(lambda p: (min(p), max(p))), max_size=12
)


@given(COUNTS, st.integers(0, 3))
def test_an_interval_holds_its_rate(clusters: list[tuple[int, int]], seed: int) -> None:
    found = cluster_rate(clusters, seed=seed)
    of = sum(n for _, n in clusters)
    if not of:
        assert found is None
        return
    assert found is not None and found == cluster_rate(clusters, seed=seed)
    assert found.value == pytest.approx(sum(c for c, _ in clusters) / of)
    assert 0.0 <= found.low <= found.value + 1e-9 and found.value - 1e-9 <= found.high <= 1.0


def test_answers_to_one_problem_are_no_evidence_about_others() -> None:
    """Sixteen equal answers to each of four problems tell as much as one answer to each."""
    many = cluster_rate([(16, 16), (16, 16), (0, 16), (0, 16)])
    one = cluster_rate([(1, 1), (1, 1), (0, 1), (0, 1)])
    assert many is not None and one is not None
    assert (many.low, many.high) == (one.low, one.high) == (0.0, 1.0)


def test_an_interval_has_the_width_that_theory_gives_it() -> None:
    found = cluster_rate([(1, 1)] * 60 + [(0, 1)] * 40)
    assert found is not None
    half = 1.96 * (0.6 * 0.4 / 100) ** 0.5
    assert found.low == pytest.approx(0.6 - half, abs=0.02)
    assert found.high == pytest.approx(0.6 + half, abs=0.02)


def test_scores_by_hand() -> None:
    """Two problems, four episodes each: A right, repaired, twice failed; B cheats throughout."""
    played = [
        rollout(0, [RIGHT]),
        rollout(1, [RIGHT]),
        rollout(2, [WRONG, RIGHT]),
        rollout(3, [WRONG, WRONG]),
        *(rollout(n, [CHEAT, CHEAT], "B", tokens=7) for n in range(4)),
    ]
    scores = scores_of(played, [rollout(0, [RIGHT]), rollout(0, [WRONG, RIGHT], "B")])
    assert (scores.problems, scores.n) == (2, 8)
    assert scores.sampled is not None and scores.sampled.value == 2 / 8
    assert scores.greedy is not None and scores.greedy.value == 1 / 2
    assert {k: rate.value for k, rate in scores.pass_at.items()} == {1: 0.25, 4: 0.5}
    assert scores.within is not None and scores.within.value == 3 / 8
    assert scores.retry is not None and (scores.retry.value, scores.retry.n) == (1 / 6, 6)
    # A's two failures would have been right in 2 of 3 other episodes; B's four in none.
    assert scores.blind is not None and scores.blind.value == pytest.approx((2 * 2 / 3) / 6)
    assert scores.cheats is not None and scores.cheats.value == 1 / 2
    assert scores.parsed is not None and scores.parsed.value == 1.0
    assert scores.failures == {"right": 2, "numerics": 2, "policy: no_custom_kernel": 4}
    assert scores.tokens_per_answer == 5.0


def test_what_was_not_judged_by_our_fault_is_left_out() -> None:
    lost = Verdict(Status.UNAVAILABLE, message="gone")
    scores = scores_of([rollout(0, [RIGHT]), rollout(1, [lost])])
    assert scores.n == 1 and scores.sampled is not None and scores.sampled.value == 1.0


def test_nothing_played_has_no_rates() -> None:
    scores = scores_of([])
    assert scores.sampled is scores.retry is scores.greedy is None
    assert not scores.pass_at and not scores.failures


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("NameError: name 'result_y' is not defined", "runtime: NameError"),
        ("IndexError: out-of-bounds load", "runtime: IndexError"),
    ],
)
def test_a_failure_is_named_by_its_error(message: str, name: str) -> None:
    failed = Verdict(Status.RUNTIME_ERROR, compiled=True, trials=1, message=message)
    assert failure_of(turn(0, failed)) == name
