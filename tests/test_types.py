from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator, verdict
from kernelgym.types import (
    Answer,
    Evaluator,
    Finding,
    Kernel,
    Mismatch,
    Problem,
    Reply,
    Score,
    Severity,
    Timing,
    Trajectory,
    Turn,
    Verdict,
)
from support.strategies import any_text, verdicts


def turn(index: int, total: float, found: Verdict) -> Turn:
    from kernelgym.feedback import feedback

    empty = Reply(None)
    return Turn(index, "", empty, found, feedback(found, empty), Score(total))


@given(verdicts())
def test_a_verdict_survives_json(found: Verdict) -> None:
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert Verdict.from_dict(json.loads(text)) == found


@given(verdicts())
def test_a_verdicts_dict_says_what_its_properties_say(found: Verdict) -> None:
    data = found.to_dict()
    for name in ("correct", "valid", "timed", "speedup", "speedup_low"):
        assert data[name] == getattr(found, name)
    assert (found.speedup > 0) == found.timed


@given(verdicts())
def test_a_verdict_survives_pickling(found: Verdict) -> None:
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    "change",
    [
        {"status": "wrong"},
        {"compiled": False},
        {"trials_passed": 3},
        {"trials_passed": 5},
        {"trials": 0, "trials_passed": 0},
        {"max_abs_error": math.inf},
        {"max_rel_error": math.nan},
        {"status": "splendid"},
    ],
)
def test_a_verdict_that_contradicts_itself_cannot_be_built(change: dict[str, object]) -> None:
    data = verdict("correct", speedup=2.0).to_dict()
    assert Verdict.from_dict(data).correct
    with pytest.raises(ValueError):
        Verdict.from_dict(data | change)


@pytest.mark.parametrize(
    "numbers",
    [(0, 1, 1, 1), (1, -1, 1, 1), (1, 1, math.nan, 1), (1, 1, math.inf, 1), (1, 2, 2, 2.1)],
)
def test_a_timing_needs_sound_numbers(numbers: tuple[float, ...]) -> None:
    with pytest.raises(ValueError):
        Timing(*numbers, samples=3)


@pytest.mark.parametrize("high", [1.9, -1.0, math.nan, math.inf])
def test_a_timing_refuses_an_upper_end_below_its_speedup(high: float) -> None:
    with pytest.raises(ValueError, match="speedup_high"):
        Timing(1, 2, 2, 1.8, samples=3, speedup_high=high)


def test_a_timing_written_without_its_upper_end_can_be_read() -> None:
    data = verdict("correct", speedup=2.0).to_dict()
    del data["timing"]["speedup_high"]
    timing = Verdict.from_dict(data).timing
    assert timing is not None and timing.speedup_high == 0.0


@given(any_text, any_text)
def test_digests_tell_texts_apart(one: str, other: str) -> None:
    same = Kernel(one, "cpp").digest == Kernel(other, "cpp").digest
    assert same == (one == other)
    assert Kernel(one, "cpp").digest != Kernel(one, "cuda").digest
    assert len(Problem("a", "b", 1, "c", one).digest) == 16


def test_statuses_and_findings_are_plain_text_in_json() -> None:
    found = verdict("wrong", findings=(Finding("x", "y", Severity.HARD, 3),))
    data = json.loads(json.dumps(found.to_dict()))
    assert data["status"] == "wrong"
    assert data["findings"] == [{"code": "x", "message": "y", "severity": "hard", "line": 3}]


def test_the_best_turn_is_the_earliest_of_the_highest() -> None:
    totals = (0.1, 0.7, 0.7, 0.2)
    turns = tuple(turn(i, total, verdict("wrong")) for i, total in enumerate(totals))
    best = Trajectory(SAMPLE_PROBLEM, turns).best
    assert best is turns[1]
    assert Trajectory(SAMPLE_PROBLEM).best is None


def test_one_unavailable_verdict_makes_a_trajectory_invalid() -> None:
    turns = (turn(0, 0.0, verdict("correct")), turn(1, 0.0, verdict("unavailable")))
    assert Trajectory(SAMPLE_PROBLEM, turns[:1]).valid
    assert not Trajectory(SAMPLE_PROBLEM, turns).valid


def test_one_turn_that_could_not_be_scored_makes_a_trajectory_invalid() -> None:
    first = turn(0, 0.0, verdict("wrong"))
    lost = dataclasses.replace(first, index=1, score=Score(0.3, valid=False))
    assert not Trajectory(SAMPLE_PROBLEM, (first, lost)).valid


def test_the_scripted_evaluator_keeps_the_protocol() -> None:
    assert isinstance(ScriptedEvaluator(), Evaluator)


def test_a_verdict_written_before_there_were_places_and_floors_can_be_read() -> None:
    found = verdict("correct", speedup=2.0)
    data = json.loads(json.dumps(found.to_dict()))
    for name in ("mismatch", "custom_share"):
        del data[name]
    for name in ("floor_ms", "moved_bytes", "speedup_high"):
        del data["timing"][name]
    assert Verdict.from_dict(data) == found


def test_only_a_wrong_verdict_has_a_mismatch_and_some_element_differs() -> None:
    place = Mismatch(3, (2, 2))
    with pytest.raises(ValueError, match="only a wrong verdict"):
        dataclasses.replace(verdict("correct"), mismatch=place)
    for count in (0, 5):
        with pytest.raises(ValueError, match="elements differ"):
            Mismatch(count, (2, 2))


def test_a_timing_says_how_near_it_is_to_the_floor() -> None:
    timing = Timing(2.0, 3.0, 1.5, 1.4, samples=9, floor_ms=0.5, moved_bytes=4_000_000)
    assert timing.floor_share == 0.25
    assert timing.bandwidth_gb_s == 2.0
    assert Timing(2.0, 3.0, 1.5, 1.4, samples=9).floor_share == 0.0


def test_timing_of_an_old_record_has_no_windows() -> None:
    found = dataclasses.replace(verdict("correct", speedup=2.0), message="old").to_dict()
    del found["timing"]["windows"]
    assert Verdict.from_dict(found).timing == Timing(0.5, 1.0, 2.0, 1.9, samples=10)


@pytest.mark.parametrize("windows", [((1.0, 1.0),) * 65, ((0.0, 1.0),), ((1.0, math.inf),)])
def test_timing_with_unfit_windows_is_refused(windows: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="windows"):
        Timing(1.0, 2.0, 2.0, 1.9, samples=99, windows=windows)


@given(any_text, st.booleans(), st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_answer_copied_or_pickled_keeps_its_mark(text: str, cut_off: bool, protocol: int) -> None:
    answer = Answer(text, cut_off)
    pickled = pickle.loads(pickle.dumps(answer, protocol))
    for other in (pickled, copy.copy(answer), copy.deepcopy([answer])[0]):
        assert type(other) is Answer
        assert other == answer == text and other.cut_off is cut_off


@given(any_text, st.booleans())
def test_answer_is_its_text(text: str, cut_off: bool) -> None:
    answer = Answer(text, cut_off=cut_off)
    assert isinstance(answer, str) and hash(answer) == hash(text) and {answer: 1}[text] == 1
    assert type(str(answer)) is str and str(answer) == text
    assert json.loads(json.dumps(answer)) == json.loads(json.dumps(text))


def test_answer_mark_cannot_be_changed() -> None:
    answer = Answer("text")
    assert answer.cut_off is False and Answer() == ""
    with pytest.raises(AttributeError):
        answer.cut_off = True  # type: ignore[misc]
