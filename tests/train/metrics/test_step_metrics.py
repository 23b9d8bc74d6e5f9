"""A step's numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.testing import verdict
from kernelgym.types import Finding, Severity, Status, Verdict
from kernelgym_train.metrics.step_metrics import (
    advantage_metrics,
    distributions,
    rollout_metrics,
    summary,
)
from kernelgym_train.types import Key, Rollout, Sample
from support import played

RIGHT, WRONG = verdict("correct", speedup=2.0), verdict("wrong")


def test_rates_per_turn_level_and_episode() -> None:
    rollouts = [
        played.rollout([0.2, 1.0], number=0, verdicts=[WRONG, RIGHT], ended="solved"),
        played.rollout([0.0, 0.0], number=1, verdicts=[WRONG, verdict("compile_error")]),
    ]
    found = rollout_metrics(rollouts)
    assert found["kernel/correct_rate"] == 0.25
    assert found["kernel/compile_rate"] == 0.75
    assert (found["turn_1/correct_rate"], found["turn_2/correct_rate"]) == (0.0, 0.5)
    assert found["level_1/reward_mean"] == pytest.approx(0.3)
    assert (found["episode/success_rate"], found["episode/turns_mean"]) == (0.5, 2.0)
    assert found["episode/best_speedup_max"] == found["episode/best_speedup_mean"] == 2.0
    assert found["status/wrong"] == 0.5
    assert (found["reward/mean"], found["reward/max"]) == (pytest.approx(0.3), 1.0)
    assert found["batch/groups"] == 1.0 and found["batch/turns"] == 4.0


def test_moved_verdicts_are_counted() -> None:
    moved = replace(WRONG, findings=(Finding("device_moved", "cuda:0 had failed", Severity.INFO),))
    found = rollout_metrics([played.rollout([0.0, 0.0], verdicts=[moved, WRONG])])
    assert found["infra/moved"] == 1.0


def test_verdict_untimed_on_a_shared_device_is_counted() -> None:
    why = Finding("device_shared", "others use the device", Severity.SOFT)
    shared = replace(verdict("correct"), findings=(why, why))
    first = played.rollout([1.0, 1.0], verdicts=[shared, RIGHT])
    cut = played.rollout([1.0, 0.0], number=1, verdicts=[shared, Verdict(Status.UNAVAILABLE)])
    assert rollout_metrics([first, cut])["infra/device_shared"] == 2.0
    assert rollout_metrics([played.rollout([1.0], verdicts=[RIGHT])])["infra/device_shared"] == 0.0


def test_our_own_failures_are_in_no_rate() -> None:
    down = Verdict(Status.UNAVAILABLE)
    good = played.rollout([1.0], verdicts=[RIGHT], ended="solved")
    lost = played.rollout([0.0, 0.0], number=1, verdicts=[WRONG, down], ended="cut")
    found = rollout_metrics([good, lost])
    assert found["infra/fail_rate"] == 0.5
    assert found["kernel/correct_rate"] == 1.0
    assert "turn_2/correct_rate" not in found


TOTALS = ("batch/", "infra/", "tokens/total", "tokens/policy_version_min")


@given(
    st.lists(st.lists(st.floats(-1, 2), min_size=1, max_size=3), max_size=4),
    st.lists(st.lists(st.floats(-1, 2), max_size=3), min_size=1, max_size=3),
)
def test_cut_trajectories_are_in_no_rate(whole, cut) -> None:
    """Verdicts of a cut trajectory may be valid: a policy failed, or a wrapper ended it."""
    kept = [played.rollout(scores, number=number, horizon=3) for number, scores in enumerate(whole)]
    lost: list[Rollout] = [
        played.rollout(
            scores, number=9 + number, horizon=3, ended="cut", verdicts=[RIGHT] * len(scores),
            lengths=[50] * len(scores),
        )
        for number, scores in enumerate(cut)
    ]  # fmt: skip

    def told(rollouts: list[Rollout]) -> dict[str, float]:
        found = rollout_metrics(rollouts)
        return {name: value for name, value in found.items() if not name.startswith(TOTALS)}

    assert told(kept + lost) == told(kept)
    assert distributions(kept + lost) == distributions(kept)
    found = rollout_metrics(kept + lost)
    assert found["infra/fail_rate"] == pytest.approx(len(lost) / (len(kept) + len(lost)))
    assert found["batch/turns"] == sum(map(len, whole + cut))


def test_cheats_and_findings_are_counted() -> None:
    finding = Finding("decoy", "x", Severity.HARD)
    cheat = verdict("rejected", findings=(finding, Finding("note", "y", Severity.INFO)))
    found = rollout_metrics([played.rollout([-0.1, 0.1], verdicts=[cheat, WRONG])])
    assert found["kernel/cheat_rate"] == 0.5
    assert found["finding/decoy"] == 1.0 and "finding/note" not in found


def test_what_nothing_speaks_for_is_left_out() -> None:
    assert rollout_metrics([]) == {"batch/groups": 0, "batch/trajectories": 0, "batch/turns": 0}
    untimed = rollout_metrics([played.rollout([0.5], verdicts=[verdict("correct")])])
    assert "episode/best_speedup_mean" not in untimed
    assert advantage_metrics([]) == {"advantage/samples": 0.0}
    assert distributions([]) == {}


def test_advantages_and_distributions() -> None:
    samples = [Sample(Key(0, 0, n), (1,), (2,), None, a, 1.0) for n, a in enumerate([-1.0, 2.0])]
    found = advantage_metrics(samples)
    assert (found["advantage/mean"], found["advantage/std"]) == (0.5, 1.5)
    values = distributions([played.rollout([0.2, 1.0], verdicts=[WRONG, RIGHT])], samples)
    assert values["rewards"] == [0.2, 1.0] and values["speedups"] == [2.0]
    assert values["advantages"] == [-1.0, 2.0] and values["answer_tokens"] == [3.0, 3.0]


@given(st.lists(st.lists(st.floats(-1, 2), min_size=1, max_size=4), min_size=1, max_size=6))
def test_every_number_is_finite_and_every_rate_a_rate(scores: list[list[float]]) -> None:
    rollouts = [played.rollout(each, number=n, horizon=4) for n, each in enumerate(scores)]
    for name, value in rollout_metrics(rollouts).items():
        assert math.isfinite(value), name
        if name.endswith("_rate"):
            assert 0.0 <= value <= 1.0, name


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_summaries_hold_together(values: list[float]) -> None:
    found = summary("x", values)
    assert found["x/min"] - 1e-6 <= found["x/mean"] <= found["x/max"] + 1e-6
    assert found["x/std"] >= 0.0
