"""The numbers of one training step, from its rollouts: one flat dict, names as in TensorBoard.

Contract: pure. A number that nothing speaks for is left out, never made up: no turn, no rate; no
timed kernel, no speedup. Means and rates are over the trajectories that count
(`kernelgym_train.credit.credit.counts`): what our own side or the policy's failed at is in
``infra/``, in the totals of ``batch/`` and ``tokens/``, and in no other number.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from kernelgym.types import Status, Trajectory, Turn
from kernelgym_train.credit.credit import counts
from kernelgym_train.types import Rollout, Sample


def summary(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return mean, standard deviation and extremes of some values; nothing if there are none."""
    if not values:
        return {}
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    return {
        f"{name}/mean": mean,
        f"{name}/std": math.sqrt(variance),
        f"{name}/min": min(values),
        f"{name}/max": max(values),
    }


def rollout_metrics(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """Return the metrics of a step's rollouts: overall, per level, per turn and per part."""
    rollouts = list(rollouts)
    played = [rollout.trajectory for rollout in rollouts]
    counting = [rollout for rollout in rollouts if counts(rollout)]
    whole = [rollout.trajectory for rollout in counting]
    turns = [turn for each in whole for turn in each.turns]
    found: dict[str, float] = {
        "batch/groups": float(len({rollout.key.group for rollout in rollouts})),
        "batch/trajectories": float(len(played)),
        "batch/turns": float(sum(len(each.turns) for each in played)),
    }
    if played:
        found["infra/fail_rate"] = 1.0 - len(whole) / len(played)
        found["infra/moved"] = _found("device_moved", played)
        found["infra/device_shared"] = _found("device_shared", played)
    found |= summary("reward", [turn.score.total for turn in turns])
    found |= _rates("kernel", turns) | _episodes(whole) | _statuses(turns)
    found |= _parts(turns) | _hacks(turns) | _token_totals(rollouts) | _tokens(counting)
    by_level: dict[int, list[Turn]] = defaultdict(list)
    by_turn: dict[int, list[Turn]] = defaultdict(list)
    for each in whole:
        for turn in each.turns:
            by_level[each.problem.level].append(turn)
            by_turn[turn.index + 1].append(turn)
    for level, some in sorted(by_level.items()):
        found[f"level_{level}/reward_mean"] = fmean([turn.score.total for turn in some])
        found |= _rates(f"level_{level}", some)
    for number, some in sorted(by_turn.items()):
        found[f"turn_{number}/reward_mean"] = fmean([turn.score.total for turn in some])
        found |= _rates(f"turn_{number}", some)
    return found


def advantage_metrics(samples: Iterable[Sample]) -> dict[str, float]:
    """Return metrics of a step's advantages."""
    samples = list(samples)
    found = {"advantage/samples": float(len(samples))}
    return found | summary("advantage", [sample.advantage for sample in samples])


def staleness(rollouts: Iterable[Rollout], version: int) -> dict[str, float]:
    """Return the mean and largest number of updates that the sampling weights were behind.

    Args:
        rollouts: Rollouts of the step.
        version: Updates that the learner has had when it learns from them.
    """
    ages = [float(version - one.policy_version) for each in rollouts for one in each.completions]
    if not ages:
        return {}
    return {"policy/staleness_mean": fmean(ages), "policy/staleness_max": max(ages)}


def distributions(
    rollouts: Iterable[Rollout], samples: Iterable[Sample] = ()
) -> dict[str, list[float]]:
    """Return the values of a step to draw as histograms; empty ones are left out."""
    rollouts = [rollout for rollout in rollouts if counts(rollout)]
    turns = [turn for each in rollouts for turn in each.trajectory.turns]
    found = {
        "rewards": [turn.score.total for turn in turns],
        "speedups": [turn.verdict.speedup for turn in turns if turn.verdict.timed],
        "answer_tokens": [float(len(one.ids)) for each in rollouts for one in each.completions],
        "advantages": [sample.advantage for sample in samples],
    }
    return {name: values for name, values in found.items() if values}


def _found(code: str, played: Iterable[Trajectory]) -> float:
    """Return the number of verdicts of a step that have a given finding."""
    turns = [turn for each in played for turn in each.turns]
    return float(sum(any(each.code == code for each in t.verdict.findings) for t in turns))


def _share(turns: Sequence[Turn], holds: Iterable[bool]) -> float:
    return sum(holds) / len(turns)


def _rates(name: str, turns: Sequence[Turn]) -> dict[str, float]:
    if not turns:
        return {}
    return {
        f"{name}/format_rate": _share(turns, (turn.reply.kernel is not None for turn in turns)),
        f"{name}/compile_rate": _share(turns, (turn.verdict.compiled for turn in turns)),
        f"{name}/correct_rate": _share(turns, (turn.verdict.correct for turn in turns)),
        f"{name}/cheat_rate": _share(
            turns, (turn.verdict.status is Status.REJECTED for turn in turns)
        ),
    }


def _episodes(played: Sequence[Trajectory]) -> dict[str, float]:
    if not played:
        return {}
    scores = [score for each in played for score in each.scores]
    fastest = [max((turn.verdict.speedup for turn in each.turns), default=0.0) for each in played]
    timed = [speed for speed in fastest if speed > 0.0]
    found = {
        "episode/score_mean": fmean(scores),
        "episode/score_max_mean": fmean([max(each.scores) for each in played]),
        "episode/correct_turns_mean": fmean(
            [float(sum(turn.verdict.correct for turn in each.turns)) for each in played]
        ),
        "episode/success_rate": fmean(
            [float(any(turn.verdict.correct for turn in each.turns)) for each in played]
        ),
        "episode/turns_mean": fmean([float(len(each.turns)) for each in played]),
    }
    if timed:
        found["episode/best_speedup_mean"] = fmean(timed)
        found["episode/best_speedup_max"] = max(timed)
        found["episode/best_speedup_geometric_mean"] = math.exp(fmean([math.log(s) for s in timed]))
    return found


def _statuses(turns: Sequence[Turn]) -> dict[str, float]:
    tally = Counter(turn.verdict.status for turn in turns)
    known = [status for status in Status if status is not Status.UNAVAILABLE]
    return {f"status/{each.value}": tally[each] / len(turns) for each in known} if turns else {}


def _parts(turns: Sequence[Turn]) -> dict[str, float]:
    if not turns:
        return {}
    found: dict[str, list[float]] = defaultdict(list)
    for turn in turns:
        for part, value in turn.score.parts.items():
            found[part].append(value)
    return {f"reward_part/{p}": math.fsum(v) / len(turns) for p, v in sorted(found.items())}


def _hacks(turns: Sequence[Turn]) -> dict[str, float]:
    """Return the number of turns on which each hard or soft finding was made."""
    tally = Counter(
        code
        for turn in turns
        for code in {found.code for found in turn.verdict.findings if found.severity != "info"}
    )
    return {f"finding/{code}": float(count) for code, count in sorted(tally.items())}


def _token_totals(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return the total numbers of sampled tokens, those of failed episodes included."""
    answers = [one for rollout in rollouts for one in rollout.completions]
    if not answers:
        return {}
    return {
        "tokens/total": float(sum(len(one.prompt_ids) + len(one.ids) for one in answers)),
        "tokens/policy_version_min": float(min(one.policy_version for one in answers)),
    }


def _tokens(rollouts: Sequence[Rollout]) -> dict[str, float]:
    answers = [one for rollout in rollouts for one in rollout.completions]
    if not answers:
        return {}
    thought = [
        len(turn.reply.thought) / max(1, len(turn.action))
        for rollout in rollouts
        for turn in rollout.trajectory.turns
    ]
    return {
        "tokens/prompt_mean": fmean([float(len(one.prompt_ids)) for one in answers]),
        "tokens/answer_mean": fmean([float(len(one.ids)) for one in answers]),
        "tokens/answer_max": float(max(len(one.ids) for one in answers)),
        "tokens/cut_off_rate": sum(one.finish == "length" for one in answers) / len(answers),
        "tokens/thought_share": fmean(thought),
    }
