"""Filters: each counts what it decided on and what it let through, and a filter that saw none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.testing import verdict
from kernelgym.types import Kernel, Reply, Status, Verdict
from kernelgym_train.credit.credit import CreditRule, assign_credit
from kernelgym_train.metrics.filter_counts import (
    FILTERS,
    Filtered,
    entropy_metrics,
    filter_metrics,
    filtered,
)
from kernelgym_train.types import Rollout
from support import played

RIGHT, WRONG = verdict("correct", speedup=2.0), verdict("wrong")
LATE = replace(verdict("correct"), status=Status.REJECTED, timing=None)
"""Outputs that are right, and torch did the work."""


def unparsed(rollout: Rollout) -> Rollout:
    """Return a rollout in whose answers no kernel was found."""
    turns = tuple(replace(turn, reply=Reply(None)) for turn in rollout.trajectory.turns)
    return replace(rollout, trajectory=replace(rollout.trajectory, turns=turns))


def on_a_gpu(found: Verdict) -> Verdict:
    return replace(found, device="cuda:0")


def counted(rollouts: list[Rollout], **options) -> dict[str, Filtered]:
    return filtered(rollouts, assign_credit(rollouts, CreditRule()).samples, **options)


def test_each_filter_counts_what_it_decides_on() -> None:
    verdicts = [RIGHT, WRONG, LATE, verdict("rejected"), verdict("compile_error")]
    group = [
        played.rollout([score], number=number, verdicts=[found])
        for number, (score, found) in enumerate(zip((1, 0, 0, 0, 0), verdicts, strict=True))
    ]
    group.append(unparsed(played.rollout([0], number=5, verdicts=[verdict("no_kernel")])))
    group.append(played.rollout([0], number=6, verdicts=[Verdict(Status.UNAVAILABLE)], ended="cut"))
    found = counted(group)
    assert found == {
        "invalid": Filtered(7, 6),
        "parsing": Filtered(6, 5),
        "policy": Filtered(5, 4),
        "evidence": Filtered(2, 1),
        "zero_variance": Filtered(6, 6),
    }
    assert filter_metrics(found)["filter/evidence_passed"] == 1.0
    assert filter_metrics(found)["filter/evidence_seen"] == 2.0


def test_groups_without_signal_fill_the_last_filter() -> None:
    flat = [played.rollout([0.0, 0.0], number=number) for number in range(3)]
    differing = [played.rollout([float(n)], group=1, number=n) for n in range(3)]
    assert counted(flat)["zero_variance"] == Filtered(6, 0)
    assert counted([*flat, *differing])["zero_variance"] == Filtered(9, 3)


@pytest.mark.parametrize(("timing", "found"), [(True, Filtered(2, 1)), (False, None)])
def test_timing_counts_where_kernels_are_timed(timing, found) -> None:
    timed, untimed = on_a_gpu(RIGHT), on_a_gpu(verdict("correct"))
    kernel = Kernel("class ModelNew: ...", "triton")
    rollouts = []
    for number, each in enumerate((timed, untimed, on_a_gpu(WRONG))):
        one = played.rollout([float(number)], number=number, verdicts=[each])
        turns = tuple(replace(turn, reply=Reply(kernel)) for turn in one.trajectory.turns)
        rollouts.append(replace(one, trajectory=replace(one.trajectory, turns=turns)))
    assert counted(rollouts, timing=timing).get("timing") == found


def test_interpreted_kernels_meet_no_timing_filter() -> None:
    kernel = Kernel("class ModelNew: ...", "triton")
    one = played.rollout([1.0], verdicts=[replace(verdict("correct"), device="cpu")])
    turns = tuple(replace(turn, reply=Reply(kernel)) for turn in one.trajectory.turns)
    one = replace(one, trajectory=replace(one.trajectory, turns=turns))
    assert "timing" not in counted([one], timing=True)


def test_entropy_is_told_before_and_after_filters() -> None:
    def told(rollout: Rollout, logp: float) -> Rollout:
        answers = tuple(replace(a, logprobs=(logp,) * len(a.ids)) for a in rollout.completions)
        return replace(rollout, completions=answers)

    flat = [told(played.rollout([0.0], number=n), -3.0) for n in range(2)]
    kept = [told(played.rollout([float(n)], group=1, number=n), -1.0) for n in range(2)]
    samples = assign_credit([*flat, *kept], CreditRule()).samples
    assert entropy_metrics([*flat, *kept], samples) == {"entropy/raw": 2.0, "entropy/masked": 1.0}
    assert entropy_metrics(flat, ()) == {"entropy/raw": 3.0}
    assert entropy_metrics([played.rollout([0.0])], ()) == {}


STATUSES = st.sampled_from(
    [RIGHT, WRONG, LATE, verdict("rejected"), verdict("timeout"), Verdict(Status.UNAVAILABLE)]
)


@given(st.lists(st.tuples(STATUSES, st.booleans(), st.integers(0, 1)), max_size=12), st.booleans())
def test_no_filter_lets_more_through_than_it_saw(drawn, timing) -> None:
    rollouts = []
    for number, (found, parsed, score) in enumerate(drawn):
        ended = "budget" if found.valid else "cut"
        one = played.rollout([float(score)], number=number, verdicts=[found], ended=ended)
        rollouts.append(one if parsed else unparsed(one))
    found = counted(rollouts, timing=timing)
    assert list(found) == [name for name in FILTERS if name in found]
    assert all(0 <= each.passed <= each.seen > 0 for each in found.values())
    if drawn:
        assert found["invalid"].seen == len(drawn)
