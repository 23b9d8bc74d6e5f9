"""Rewards: every preset by hand, and the contract over all presets that can be built."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelgym
from kernelgym.errors import UnknownName, UsageError
from kernelgym.rewards import (
    PARTS,
    REWARDS,
    RewardPreset,
    RewardSchedule,
    Weights,
    check_speed,
    reward_preset,
    reward_schedule,
)
from kernelgym.rewards import score as score_turn
from kernelgym.testing import SAMPLE_KERNELS, verdict
from kernelgym.types import Finding, Kernel, Reply, Severity, Status, Verdict
from kernelgym.verdict import CLOCK_MISMATCH, SMALL_SHARE, UNCONFIRMED_SPEED
from support.strategies import as_turn, presets, replies, speedups, verdicts

KERNEL = SAMPLE_KERNELS["triton"]
TIDY, UNTIDY, EMPTY = Reply(KERNEL), Reply(KERNEL, "", ("no_kernel_tag",)), Reply(None)
CHEATING = (Status.NO_KERNEL, Status.REJECTED)
HONEST = (Status.COMPILE_ERROR, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.WRONG)
FAST = verdict("correct", speedup=2.5, speedup_low=2.0, custom_share=0.8)
SLOW = verdict("correct", speedup=0.6, speedup_low=0.5, custom_share=0.8)
HALF = verdict("wrong", trials_passed=2, trials=4)

histories = st.lists(verdicts(), max_size=3).map(
    lambda found: tuple(as_turn(i, v) for i, v in enumerate(found))
)


@given(presets, replies, verdicts(HONEST), histories)
def test_an_honest_failure_is_never_below_zero(preset, reply, found, history) -> None:
    assert score_turn(preset, reply, found, history).total >= 0.0


@given(presets, replies, verdicts(CHEATING), histories)
def test_cheating_is_never_above_zero(preset, reply, found, history) -> None:
    rejected = found.status is Status.REJECTED
    penalty = preset.cheating_penalty if rejected else preset.format_penalty
    assert score_turn(preset, reply, found, history).total == min(0.0, penalty)


@given(presets, verdicts())
def test_an_unreadable_answer_is_never_above_zero(preset, found) -> None:
    assert score_turn(preset, EMPTY, found).total <= 0.0


@given(presets, replies, replies, verdicts(CHEATING), verdicts(HONEST), histories)
def test_an_honest_answer_is_never_below_a_cheating_one(
    preset, one, other, cheat, failed, history
) -> None:
    honest = score_turn(preset, one, failed, history).total
    assert honest >= score_turn(preset, other, cheat, history).total
    assert honest >= score_turn(preset, Reply(None, other.thought), failed, history).total


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
    result = score_turn(preset, reply, found, history)
    assert (result.total, result.valid) == (0.0, False)


@given(presets, replies, verdicts(), histories)
def test_parts_have_the_same_keys_and_add_up(preset, reply, found, history) -> None:
    result = score_turn(preset, reply, found, history)
    assert tuple(result.parts) == PARTS
    assert result.total == pytest.approx(math.fsum(result.parts.values()))


@given(presets, replies, verdicts(), histories)
def test_only_the_penalty_is_ever_negative(preset, reply, found, history) -> None:
    parts = dict(score_turn(preset, reply, found, history).parts)
    assert parts.pop("penalty") <= 0.0
    assert min(parts.values()) >= 0.0


@given(presets, replies, verdicts(), st.floats(0, 1))
def test_only_the_custom_part_reads_the_custom_share(preset, reply, found, share) -> None:
    changed = score_turn(preset, reply, dataclasses.replace(found, custom_share=share))
    without = score_turn(preset, reply, found)
    same = {k: v for k, v in without.parts.items() if k != "custom"}
    assert {k: v for k, v in changed.parts.items() if k != "custom"} == same
    read = preset.weights.custom * share if found.correct and reply.kernel else 0.0
    assert changed.parts["custom"] == pytest.approx(read)


# Every row is worked by hand from docs/rewards.md. LOG_2: the log shape of a speedup of 2.
LOG_2 = math.log(3.0) / math.log(11.0)
BY_HAND = [
    ("stage1", "compile_error", 0.3),
    ("stage1", "runtime_error", 0.3 + 0.5),
    ("stage1", HALF, 0.3 + 0.5 + 0.1 * 2 / 4),
    ("stage1", FAST, 0.3 + 0.5 + 0.1 + 0.1),
    ("stage1", "no_kernel", -0.1),
    ("stage1", "rejected", -0.1),
    ("stage2", "compile_error", 0.1),
    ("stage2", "timeout", 0.1 + 0.2),
    ("stage2", HALF, 0.1 + 0.2 + 0.35 * 2 / 4),
    ("stage2", FAST, 0.1 + 0.2 + 0.35 + 0.35),
    ("stage2", "rejected", -0.1),
    ("stage3", HALF, 0.05 + 0.1),
    ("stage3", "correct", 0.05 + 0.1 + 0.5),
    ("stage3", FAST, 0.05 + 0.1 + 0.5 + 0.35 * LOG_2),
    ("stage3", verdict("correct", speedup=90.0), 1.0),
    ("stage3", "rejected", -0.1),
    ("sparse", HALF, 0.0),
    ("sparse", FAST, 1.0),
    ("sparse", "rejected", 0.0),
    ("kevin", HALF, 0.0),
    ("kevin", SLOW, 0.3 + 0.5),
    ("kevin", FAST, 0.3 + 2.0),
    ("kevin", verdict("correct", speedup=90.0), 0.3 + 10.0),
    ("kevin", "rejected", 0.0),
    ("drkernel", HALF, 0.0),
    ("drkernel", SLOW, 0.5 + 0.5 * 0.5 + 0.5 * 0.8),
    ("drkernel", FAST, 0.5 + 0.5 * 2.0 + 0.5 * 0.8),
    ("drkernel", verdict("correct", speedup=90.0), 0.5 + 0.5 * 3.0),
    ("milestones", HALF, 0.0),
    ("milestones", SLOW, 1.0),
    ("milestones", verdict("correct", speedup=1.3, speedup_low=1.2), 1.0 + 2 / 5),
    ("milestones", FAST, 1.0 + 4 / 5),
    ("milestones", verdict("correct", speedup=90.0), 2.0),
    ("milestones", "no_kernel", -0.1),
    ("milestones", "rejected", -1.0),
    ("improvement", HALF, 0.0),
    ("improvement", FAST, 0.3 + 2.0),
    ("improvement", "rejected", 0.0),
]


@pytest.mark.parametrize(
    ("name", "found", "total"),
    BY_HAND,
    ids=lambda value: getattr(value, "status", value) if not isinstance(value, float) else "",
)
def test_what_the_presets_pay(name: str, found: str | Verdict, total: float) -> None:
    judged = verdict(found) if isinstance(found, str) else found
    assert score_turn(REWARDS[name], TIDY, judged).total == pytest.approx(total)


def test_every_preset_is_worked_by_hand() -> None:
    assert {name for name, *_ in BY_HAND} == set(REWARDS)


def test_an_untidy_answer_earns_three_quarters_of_the_format_part() -> None:
    assert score_turn(REWARDS["stage1"], UNTIDY, FAST).parts["format"] == pytest.approx(0.225)


def test_a_small_share_lowers_speed_and_nothing_else() -> None:
    preset = RewardPreset("own", Weights(correct=0.5, speed=1.0), "optional", small_share=0.25)
    found = Finding(SMALL_SHARE, "torch does 95 %", Severity.SOFT)
    small = dataclasses.replace(FAST, findings=(found,))
    whole, lowered = (score_turn(preset, TIDY, judged).parts for judged in (FAST, small))
    assert lowered["speed"] == pytest.approx(0.25 * whole["speed"]) and whole["speed"] > 0
    assert lowered["correct"] == whole["correct"] == 0.5


def test_a_disputed_clock_is_no_reason_to_drop_a_turn() -> None:
    untimed = dataclasses.replace(verdict("correct"), timing=None)
    lying = Finding(CLOCK_MISMATCH, "it reported too little", Severity.SOFT)
    disputed = dataclasses.replace(untimed, findings=(lying,))
    assert score_turn(REWARDS["kevin"], TIDY, disputed).valid
    assert not score_turn(REWARDS["kevin"], TIDY, untimed).valid


@pytest.mark.parametrize(
    ("shape", "half", "one", "two", "beyond"),
    [
        ("linear", 0.5, 1.0, 2.0, 4.0),
        ("log", *(math.log(1 + s) / math.log(5) for s in (0.5, 1.0, 2.0)), 1.0),
        ("clipped", 0.0, 0.0, 1.0, 3.0),
        ("milestones", 0.0, 0.5, 1.0, 1.0),
    ],
)
def test_the_shapes_of_the_speed_part(shape, half, one, two, beyond) -> None:
    preset = RewardPreset(
        "own", Weights(speed=1.0), "optional", shape, cap=4.0, milestones=(1.0, 2.0)
    )
    judged = [verdict("correct", speedup=s, speedup_low=s) for s in (0.5, 1.0, 2.0, 8.0)]
    paid = [score_turn(preset, TIDY, found).total for found in judged]
    assert paid == pytest.approx([half, one, two, beyond])


@pytest.mark.parametrize("name", ["stage3", "kevin", "drkernel", "improvement"])
def test_speed_has_no_dead_zone_below_one(name: str) -> None:
    totals = [
        score_turn(REWARDS[name], TIDY, verdict("correct", speedup=s)).total
        for s in (0.1, 0.5, 0.9, 1.0, 2.0, 3.0)
    ]
    assert totals == sorted(set(totals))


def test_improvement_pays_the_gain_over_the_best_so_far() -> None:
    preset = REWARDS["improvement"]
    lows = (1.0, 2.0, 1.5, 2.5)
    turns = [as_turn(i, verdict("correct", speedup=s, speedup_low=s)) for i, s in enumerate(lows)]
    totals = [
        score_turn(preset, TIDY, turn.verdict, turns[:i]).total for i, turn in enumerate(turns)
    ]
    assert totals == pytest.approx([0.3 + 1.0, 0.3 + 1.0, 0.3, 0.3 + 0.5])
    # Whatever came in between, the gains of an episode add up to its best speed.
    assert math.fsum(totals) - 4 * 0.3 == pytest.approx(max(lows))


@pytest.mark.parametrize(
    ("chars", "paid"), [(10, 1.0), (2_000, 1.0), (5_000, 0.5), (8_000, 0.0), (20_000, 0.0)]
)
def test_length_and_thinking_are_read_from_the_reply(chars: int, paid: float) -> None:
    preset = RewardPreset("own", Weights(correct=1.0, length=0.4, thinking=0.2))
    wordy = Reply(Kernel("x" * chars, "triton"), "y" * chars)
    parts = score_turn(preset, wordy, verdict("correct")).parts
    assert (parts["length"], parts["thinking"]) == pytest.approx((0.4 * paid, 0.2 * paid))
    failed = score_turn(preset, wordy, verdict("compile_error")).parts
    # A short kernel that does nothing is not worth a thing.
    assert (failed["length"], failed["thinking"]) == pytest.approx((0.0, 0.2 * paid))
    silent = Reply(wordy.kernel, " \n")
    assert score_turn(preset, silent, verdict("correct")).parts["thinking"] == 0.0


def test_an_unparsable_answer_earns_nothing_for_length_or_thinking() -> None:
    preset = RewardPreset("own", Weights(correct=1.0, length=0.4, thinking=0.2))
    thought = Reply(None, "a long thought")
    assert score_turn(preset, thought, verdict("no_kernel")).total == 0.0


NEEDING = [name for name, preset in REWARDS.items() if preset.speed == "required"]


@pytest.mark.parametrize("name", NEEDING)
def test_a_missing_timing_is_ours_and_a_withheld_one_the_kernels(name: str) -> None:
    preset = REWARDS[name]
    withheld = verdict("correct", findings=(Finding(UNCONFIRMED_SPEED, "two disagree"),))
    missing = score_turn(preset, TIDY, verdict("correct"))
    assert not missing.valid
    kept = score_turn(preset, TIDY, withheld)
    assert kept.valid and kept.total == pytest.approx(preset.weights.correct)
    assert score_turn(preset, TIDY, verdict("wrong")).valid


@pytest.mark.parametrize("name", sorted(set(REWARDS) - set(NEEDING)))
def test_other_presets_do_without_a_timing(name: str) -> None:
    assert score_turn(REWARDS[name], TIDY, verdict("correct")).valid


def test_the_judge_calls_a_withheld_speed_by_that_code() -> None:
    judge = Path(kernelgym.__file__).parent / "judge"
    found = [path for path in judge.rglob("*.py") if "two processes disagree" in path.read_text()]
    assert len(found) == 1
    text = found[0].read_text()
    assert f'Finding("{UNCONFIRMED_SPEED}"' in text or "Finding(UNCONFIRMED_SPEED" in text


@pytest.mark.parametrize(
    "make",
    [
        lambda: Weights(format=-0.1),
        lambda: Weights(speed=math.nan),
        lambda: RewardPreset("a", Weights(speed=1.0)),
        lambda: RewardPreset("a", Weights(improvement=1.0)),
        lambda: RewardPreset("a", Weights(), "maybe"),
        lambda: RewardPreset("a", Weights(), shape="square"),
        lambda: RewardPreset("a", Weights(correct=1.0), format_penalty=0.1),
        lambda: RewardPreset("a", Weights(correct=1.0), cheating_penalty=0.1),
        lambda: RewardPreset("a", Weights(correct=1.0), cheating_penalty=math.nan),
        lambda: RewardPreset("a", Weights(correct=1.0), untidy=1.1),
        lambda: RewardPreset("a", Weights(correct=1.0), small_share=-0.1),
        lambda: RewardPreset("a", Weights(correct=1.0), cap=0.0),
        lambda: RewardPreset("a", Weights(correct=1.0), milestones=()),
        lambda: RewardPreset("a", Weights(correct=1.0), milestones=(2.0, 1.0)),
        lambda: RewardPreset("a", Weights(correct=1.0), milestones=(0.0, 1.0)),
        lambda: RewardPreset("a", Weights(correct=1.0), length_chars=(100, 100)),
        lambda: RewardPreset("a", Weights(correct=1.0), thinking_chars=(-1, 100)),
        lambda: RewardPreset("a", Weights(format=1.0)),
        lambda: RewardPreset("a", Weights(format=1.0, correct=0.2)),
        lambda: RewardPreset("a", Weights(format=0.4, trials=1.0)),
        lambda: RewardPreset("a", Weights(thinking=0.3, correct=0.2)),
    ],
)
def test_a_preset_that_would_break_the_contract_cannot_be_built(make) -> None:
    with pytest.raises(UsageError):
        make()


def test_presets_are_found_by_name_and_pass_through() -> None:
    assert all(name == preset.name for name, preset in REWARDS.items())
    own = dataclasses.replace(REWARDS["sparse"], name="own")
    assert reward_preset(own) is own
    with pytest.raises(UnknownName, match="did you mean kevin"):
        reward_preset("kevn")


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("language", ["triton", "cpp", "cuda"])
@pytest.mark.parametrize("timing", [True, False])
def test_a_preset_that_needs_speed_is_refused_where_there_is_none(
    language: str, device: str, timing: bool
) -> None:
    timed = (language, device) in {("cpp", "cpu"), ("triton", "cuda:0"), ("cuda", "cuda:0")}
    for name, preset in REWARDS.items():
        if name not in NEEDING or (timed and timing):
            check_speed(preset, language, device, timing=timing)
            continue
        with pytest.raises(UsageError, match=r"stage1, stage2, stage3, sparse$"):
            check_speed(preset, language, device, timing=timing)


@given(st.lists(st.integers(1, 1_000), max_size=5, unique=True), st.integers(0, 2_000), st.data())
def test_a_schedule_gives_the_last_preset_that_has_begun(later, step, data) -> None:
    firsts = [0, *sorted(later)]
    names = data.draw(
        st.lists(st.sampled_from(sorted(REWARDS)), min_size=len(firsts), max_size=len(firsts))
    )
    shuffled = data.draw(st.permutations(list(zip(firsts, names, strict=True))))
    schedule = reward_schedule(dict(shuffled))
    expected = [name for first, name in zip(firsts, names, strict=True) if first <= step][-1]
    assert schedule.at(step) is REWARDS[expected]
    assert reward_schedule(schedule) is schedule


def test_one_preset_is_a_schedule_too() -> None:
    assert reward_schedule("kevin").at(10**9) is REWARDS["kevin"]
    assert hash(reward_schedule({0: "stage1", 9: "sparse"})) == hash(
        RewardSchedule(((0, REWARDS["stage1"]), (9, REWARDS["sparse"])))
    )


@pytest.mark.parametrize(
    "which",
    [{}, {1: "stage1"}, {0: "stage1", -1: "stage2"}, {0.0: "stage1"}, {False: "stage1"}, {"0": "a"},
     {0: "gold"}, {0: "stage1", "9": "stage2"}],
)  # fmt: skip
def test_a_schedule_that_makes_no_sense_is_refused(which) -> None:
    with pytest.raises(UsageError):
        reward_schedule(which)


def test_a_schedule_has_no_step_below_zero() -> None:
    with pytest.raises(UsageError, match="at least 0"):
        reward_schedule("stage1").at(-1)
