"""Episodes scored anew, without a judge."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.errors import UnknownName, UsageError
from kernelgym.records.rescore import rescore
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.rewards import REWARDS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.types import Kernel, Trajectory, Verdict
from support.strategies import texts, verdicts

STOPS = ("correct", "never", "speedup:1.5", "no_improvement:1", "no_improvement:2")


def variant(number: int, language: str = "cpp") -> str:
    source = SAMPLE_KERNELS["cpp"].source + f"\n# variant {number}\n"
    return reply(Kernel(source, language))


def play(
    steps: list[tuple[str, Verdict]], reward: str, stop_when: str, max_turns: int = 4
) -> Trajectory:
    game = Episode(
        SAMPLE_PROBLEM,
        EpisodeConfig(language="cpp", reward=reward, max_turns=max_turns, stop_when=stop_when),
    )
    for text, found in steps:
        if game.over:
            break
        read = game.read(text)
        game.record(text, found if isinstance(read, Kernel) else read)
    return game.trajectory


def record(trajectory: Trajectory, reward: str, stop_when: str = "correct") -> EpisodeRecord:
    return EpisodeRecord(
        trajectory, "cpp", "cpu", "strict@0", reward, stop_when,
        observations=tuple(str(turn.index) for turn in trajectory.turns),
    )  # fmt: skip


steps = st.lists(st.tuples(texts | st.integers(0, 3).map(variant), verdicts()), max_size=5)


@given(steps, st.sampled_from(sorted(REWARDS)), st.sampled_from(sorted(REWARDS)))
@settings(deadline=None)
def test_scores_are_those_of_an_episode_played_with_the_preset(steps, before, after) -> None:
    first, other = play(steps, before, "never"), play(steps, after, "never")
    found = rescore(record(first, before, "never"), after)
    # Scores may be a preset's reason to cut an episode; up to there they are the same.
    count = min(len(first.turns), len(other.turns))
    assert found.trajectory.turns[:count] == other.turns[:count]
    assert found.reward == after
    back = rescore(found, before)
    assert back == record(first, before, "never")


@given(steps, st.sampled_from(sorted(REWARDS)), st.sampled_from(STOPS))
@settings(deadline=None)
def test_a_rule_cuts_where_it_would_have_ended_play(steps, reward, stop_when) -> None:
    whole = record(play(steps, reward, "never"), reward, "never")
    found = rescore(whole, reward, stop_when=stop_when)
    assert found.trajectory == play(steps, reward, stop_when)
    assert len(found.observations) == len(found.trajectory.turns)
    assert found.stop_when == stop_when


def test_where_play_would_have_gone_on_the_episode_is_unfinished() -> None:
    steps = [(variant(1), verdict("wrong")), (variant(2), verdict("correct", speedup=1.2))]
    solved = record(play(steps, "stage2", "correct"), "stage2")
    assert solved.trajectory.ended == "solved"
    kept = rescore(solved, "sparse").trajectory
    assert kept.ended == "solved" and kept.scores == (0.0, 1.0)
    assert kept.returns(0.5) == (0.875, 1.75)  # the last score repeats to the horizon of 4
    open_ended = rescore(solved, "sparse", stop_when="never").trajectory
    assert open_ended.ended == "" and open_ended.returns(0.5) == (0.5, 1.0)


def test_what_was_cut_from_outside_stays_cut() -> None:
    played = play([(variant(1), verdict("wrong"))], "stage2", "correct")
    cut = record(dataclasses.replace(played, ended="cut"), "stage2")
    assert rescore(cut, "stage1").trajectory.ended == "cut"
    assert rescore(cut, "stage1", stop_when="never").trajectory.ended == "cut"


def test_a_hand_worked_example() -> None:
    steps = [
        ("nothing", verdict("wrong")),
        (variant(1), verdict("wrong", trials_passed=2, trials=4)),
        (variant(2), verdict("correct", speedup=2.0, speedup_low=1.5)),
    ]
    found = rescore(record(play(steps, "stage1", "correct"), "stage1"), "kevin")
    assert found.trajectory.scores == pytest.approx((0.0, 0.0, 0.3 + 1.5))
    assert found.trajectory.ended == "solved"


def test_gains_are_counted_from_the_turns_before() -> None:
    steps = [
        (variant(i), verdict("correct", speedup=s, speedup_low=s)) for i, s in enumerate((1, 3))
    ]
    played = record(play(steps, "stage1", "never"), "stage1", "never")
    found = rescore(played, "improvement")
    assert found.trajectory.scores == pytest.approx((0.3 + 1.0, 0.3 + 2.0))


def test_a_cut_leaves_out_what_was_read_before_later_turns() -> None:
    steps = [(variant(i), verdict("correct")) for i in range(3)]
    played = record(play(steps, "stage2", "never"), "stage2", "never")
    found = rescore(played, "stage2", stop_when="correct")
    assert (found.observations, found.trajectory.ended) == (("0",), "solved")


def test_presets_that_do_not_fit_are_refused() -> None:
    played = record(play([("nothing", verdict("wrong"))], "stage2", "correct"), "stage2")
    with pytest.raises(UnknownName, match="stage9"):
        rescore(played, "stage9")
    with pytest.raises(UsageError, match="needs measured speed"):
        rescore(dataclasses.replace(played, language="triton"), "kevin")
