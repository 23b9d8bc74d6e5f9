from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UnknownName, UsageError
from kernelgym.feedback import feedback
from kernelgym.rewards import PARTS, REWARDS, RewardPreset, Weights, check_speed, reward_preset
from kernelgym.rewards import score as score_turn
from kernelgym.testing import SAMPLE_KERNELS, verdict
from kernelgym.types import Reply, Score, Status, Turn, Verdict
from strategies import speedups, verdicts

KERNEL = SAMPLE_KERNELS["triton"]
TIDY, UNTIDY, EMPTY = Reply(KERNEL), Reply(KERNEL, "", ("no_kernel_tag",)), Reply(None)
CHEATING = (Status.NO_KERNEL, Status.REJECTED)
HONEST = (Status.COMPILE_ERROR, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.WRONG)

weights = st.floats(0, 3)


@st.composite
def own_presets(draw: st.DrawFn) -> RewardPreset:
    """Any preset that can be built, not only those that ship."""
    correct = draw(weights)
    partial = draw(st.floats(0, 1))
    untidy = draw(st.floats(0, 1))
    most = correct * (1 - partial) / (1 - untidy) if untidy < 1 else 3.0
    values = Weights(
        draw(st.floats(0, min(3.0, most) * 0.999)),
        draw(weights),
        correct,
        draw(weights),
        draw(weights),
    )
    return RewardPreset(
        "own",
        values,
        speed="optional",
        shape=draw(st.sampled_from(["linear", "log"])),
        cap=draw(st.floats(0.5, 50)),
        partial=partial,
        untidy=untidy,
        penalty=draw(st.floats(-2, 0)),
    )


presets = st.sampled_from(list(REWARDS.values())) | own_presets()
replies = st.sampled_from([TIDY, UNTIDY])


def as_turn(index: int, found: Verdict) -> Turn:
    return Turn(index, "", TIDY, found, feedback(found, TIDY), Score(0.0))


histories = st.lists(verdicts(), max_size=3).map(
    lambda found: tuple(as_turn(i, v) for i, v in enumerate(found))
)


@given(presets, replies, verdicts(HONEST), histories)
def test_an_honest_failure_is_never_below_zero(preset, reply, found, history) -> None:
    assert score_turn(preset, reply, found, history).total >= 0.0


@given(presets, replies, verdicts(CHEATING), histories)
def test_cheating_is_never_above_zero(preset, reply, found, history) -> None:
    assert score_turn(preset, reply, found, history).total == min(0.0, preset.penalty)


@given(presets, verdicts())
def test_an_unreadable_answer_is_never_above_zero(preset, found) -> None:
    assert score_turn(preset, EMPTY, found).total <= 0.0


@given(presets, replies, replies, verdicts((Status.CORRECT,)), verdicts(HONEST), histories)
def test_a_correct_kernel_never_scores_less_than_a_failure(
    preset, one, other, right, failed, history
) -> None:
    high = score_turn(preset, one, right, history).total
    assert high >= score_turn(preset, other, failed, history).total - 1e-9


@given(presets, replies, speedups, speedups, histories)
def test_the_score_never_falls_as_speedup_low_rises(preset, reply, one, other, history) -> None:
    low, high = sorted((one, other))
    # The estimate itself goes the other way, which must not matter.
    slow = verdict("correct", speedup=500.0, speedup_low=low)
    fast = verdict("correct", speedup=400.0, speedup_low=high)
    scores = [score_turn(preset, reply, found, history).total for found in (slow, fast)]
    assert scores[0] <= scores[1] + 1e-12


@given(presets, replies, verdicts((Status.UNAVAILABLE,)), histories)
def test_unavailable_scores_nothing(preset, reply, found, history) -> None:
    assert score_turn(preset, reply, found, history).total == 0.0


@given(presets, replies, verdicts(), histories)
def test_parts_have_the_same_keys_and_add_up(preset, reply, found, history) -> None:
    result = score_turn(preset, reply, found, history)
    assert tuple(result.parts) == PARTS
    assert result.total == pytest.approx(math.fsum(result.parts.values()))


@given(presets, replies, verdicts(), histories)
def test_improvement_is_never_negative(preset, reply, found, history) -> None:
    assert score_turn(preset, reply, found, history).parts["improvement"] >= 0.0


def test_kevins_score_is_the_papers() -> None:
    kevin = REWARDS["kevin"]
    found = verdict("correct", speedup=2.0, speedup_low=1.5)
    assert score_turn(kevin, TIDY, found).total == pytest.approx(0.3 + 1.5)
    assert score_turn(kevin, TIDY, verdict("correct")).total == pytest.approx(0.3)
    assert score_turn(kevin, TIDY, verdict("wrong", trials_passed=3)).total == 0.0
    capped = verdict("correct", speedup=90.0)
    assert score_turn(kevin, TIDY, capped).total == pytest.approx(0.3 + kevin.cap)


@pytest.mark.parametrize(
    ("name", "status", "total"),
    [
        ("stage1", "compile_error", 0.3),
        ("stage1", "correct", 1.0),
        ("stage2", "compile_error", 0.1),
        ("stage2", "wrong", 0.1 + 0.2 + 0.7 * 0.5 * 0.5),
        ("stage2", "runtime_error", 0.1 + 0.2),
        ("stage2", "correct", 1.0),
        ("stage3", "correct", 0.65),
        ("sparse", "wrong", 0.0),
        ("sparse", "correct", 1.0),
        ("stage1", "rejected", -0.1),
        ("sparse", "rejected", 0.0),
    ],
)
def test_what_the_presets_pay(name: str, status: str, total: float) -> None:
    found = verdict(status, trials_passed=2, trials=4)
    assert score_turn(REWARDS[name], TIDY, found).total == pytest.approx(total)


def test_speed_has_no_dead_zone_below_one() -> None:
    for name in ("stage3", "kevin"):
        totals = [
            score_turn(REWARDS[name], TIDY, verdict("correct", speedup=s)).total
            for s in (0.1, 0.5, 0.9, 1.0, 2.0, 5.0)
        ]
        assert totals == sorted(set(totals))


def test_improvement_reads_the_history() -> None:
    preset = RewardPreset("own", Weights(improvement=1.0), speed="optional", shape="linear")
    history = tuple(
        as_turn(i, verdict("correct", speedup=s, speedup_low=s)) for i, s in enumerate((1.0, 2.0))
    )
    better = verdict("correct", speedup=3.0, speedup_low=3.0)
    worse = verdict("correct", speedup=1.5, speedup_low=1.5)
    assert score_turn(preset, TIDY, better, history).total == pytest.approx(1.0)
    assert score_turn(preset, TIDY, better, history[:1]).total == pytest.approx(2.0)
    assert score_turn(preset, TIDY, worse, history).parts["improvement"] == 0.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Weights(format=-0.1),
        lambda: Weights(speed=math.nan),
        lambda: RewardPreset("a", Weights(speed=1.0)),
        lambda: RewardPreset("a", Weights(correct=1.0), penalty=0.1),
        lambda: RewardPreset("a", Weights(correct=1.0), penalty=math.nan),
        lambda: RewardPreset("a", Weights(correct=1.0), partial=1.1),
        lambda: RewardPreset("a", Weights(correct=1.0), cap=0.0),
        lambda: RewardPreset("a", Weights(format=1.0)),
        lambda: RewardPreset("a", Weights(format=1.0, correct=0.2)),
        lambda: RewardPreset("a", Weights(format=0.1, correct=1.0), partial=1.0),
    ],
)
def test_a_preset_that_would_break_the_contract_cannot_be_built(make) -> None:
    with pytest.raises(UsageError):
        make()


def test_presets_are_found_by_name_and_pass_through() -> None:
    assert set(REWARDS) == {"stage1", "stage2", "stage3", "sparse", "kevin"}
    own = dataclasses.replace(REWARDS["sparse"], name="own")
    assert reward_preset(own) is own
    with pytest.raises(UnknownName, match="did you mean kevin"):
        reward_preset("kevn")


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("language", ["triton", "cpp", "cuda"])
def test_a_preset_that_needs_speed_is_refused_where_there_is_none(
    language: str, device: str
) -> None:
    timed = (language, device) in {("cpp", "cpu"), ("triton", "cuda:0"), ("cuda", "cuda:0")}
    for name in ("stage1", "stage2", "stage3", "sparse"):
        check_speed(REWARDS[name], language, device)
    if timed:
        check_speed(REWARDS["kevin"], language, device)
    else:
        with pytest.raises(UsageError, match=r"stage1, stage2, stage3, sparse$"):
            check_speed(REWARDS["kevin"], language, device)
