"""Rates and intervals of held-out episodes."""

from __future__ import annotations

import pytest

from kernelgym.types import Status, Verdict
from kernelgym_train.demo.scores import scores_of
from support.demo_rollouts import CHEAT, RIGHT, WRONG, rollout


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
