"""Scores played episodes again, by another preset, without judging anything again.

Contract: every turn is scored from its recorded verdict, with the turns before it (scored anew as
well) as history, exactly as `kernelgym.episodes.episode.Episode` would have done; texts, verdicts
and feedback stay as they are. Under the preset that an episode was played with it comes out as it
was.

What cannot be done anew is play: a stop rule decided how many turns there are. No rule looks at
scores, so another preset does not move an episode's end; another rule does:

- without a stop rule given, the turns and why they ended stay as they were recorded;
- with one, turns after the first at which it ends the episode are left out; where it would have
  played on beyond the recording, `Trajectory.ended` is empty: a beginning of an episode, whose
  returns count nothing after its last turn.

The model may have read of a turn budget and of turns left that it was then not given. A preset
that must have speeds gives a correct kernel without timing no valid score; see `Score.valid`.
"""

from __future__ import annotations

import dataclasses

from kernelgym.episodes.stopping import StopRule, ended, stop_rule
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.rewards import RewardPreset, check_speed, reward_preset, score
from kernelgym.types import Ended, Trajectory, Turn


def rescore(
    record: EpisodeRecord,
    reward: str | RewardPreset,
    *,
    stop_when: str | StopRule | None = None,
) -> EpisodeRecord:
    """Return a copy of an episode's record, scored by another reward preset.

    Args:
        record: The recorded episode.
        reward: A preset or its name.
        stop_when: A stop rule to apply anew; None keeps the turns as recorded.

    Raises:
        UsageError: If there is no such preset or rule, or the preset needs speed and the episode's
            language is not timed on its device.
    """
    preset = reward_preset(reward)
    check_speed(preset, record.language, record.device)
    rule = None if stop_when is None else stop_rule(stop_when)
    trajectory = rescore_trajectory(record.trajectory, preset, stop_when=rule)
    return dataclasses.replace(
        record,
        trajectory=trajectory,
        reward=preset.name,
        stop_when=record.stop_when if rule is None else str(rule),
        observations=record.observations[: len(trajectory.turns)],
    )


def rescore_trajectory(
    trajectory: Trajectory, preset: RewardPreset, *, stop_when: StopRule | None = None
) -> Trajectory:
    """Return `trajectory` with the scores of `preset`; see `rescore`."""
    turns: list[Turn] = []
    why: Ended = ""
    for turn in trajectory.turns:
        earned = score(preset, turn.reply, turn.verdict, turns)
        turns.append(dataclasses.replace(turn, score=earned))
        if stop_when is not None and (why := ended(stop_when, turns, trajectory.horizon)):
            break
    if stop_when is None:
        why = trajectory.ended
    elif not why and trajectory.ended == "cut":
        why = "cut"  # from outside, and the rule had not ended it before that
    return dataclasses.replace(trajectory, turns=tuple(turns), ended=why)
