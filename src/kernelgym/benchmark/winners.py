"""Winners of several measurements, measured again: a run's ``winners.jsonl``.

The best of several measurements flatters, so the fastest turn of an episode with two timed turns or
more is judged anew, in a process of its own and on fresh inputs.

Contract: a second verdict counts only for the kernel that it was made for. What is in the file
already is not judged again; an `unavailable` verdict is. Nothing else of the run is changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from kernelgym.benchmark.folders import WINNERS_FILE, PlayedEpisode, RecordedRun
from kernelgym.benchmark.numbers.outcomes import whole, winner
from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import append_line
from kernelgym.types import Evaluator

__all__ = ["measure_winners", "unconfirmed"]


def unconfirmed(run: RecordedRun) -> list[PlayedEpisode]:
    """Return the episodes whose winner should be measured again."""
    return [
        played
        for played in run.episodes
        if (played.second is None or not played.second.valid)
        and whole(played.record.trajectory)
        and sum(turn.verdict.timed for turn in played.turns) > 1
    ]


def measure_winners(
    run: RecordedRun, evaluator: Evaluator, *, on_verdict: Callable[[], object] = lambda: None
) -> int:
    """Judge winners again, and keep their verdicts; returns how many were judged.

    Args:
        run: The run, of a folder with a plan.
        evaluator: Judges by the run's rules on its device; a seed of its own sees to it that no
            cache answers.
        on_verdict: Called for each verdict.

    Raises:
        UsageError: If the run has no folder to keep them in, other rules, or another device.
    """
    if not run.plan or not run.path.is_dir():
        raise UsageError(
            f"winners are kept in a run's folder, and {str(run.path)!r} is none of an eval run"
        )
    chosen, can = unconfirmed(run), evaluator.capabilities
    for played in chosen:
        record = played.record
        if (record.ruleset, record.device) != (can.ruleset.label, can.device):
            raise UsageError(
                f"{run.name} was judged by {record.ruleset!r} on {record.device!r}, and the "
                f"evaluator judges by {can.ruleset.label!r} on {can.device!r}; a "
                "second measurement needs the same"
            )
        if not record.has_source:
            raise UsageError(
                f"the run holds no source of {played.key[0]}; put it back with "
                "kernelgym.records.trajectories.with_source"
            )
    for played in chosen:
        turn = winner(played.turns)
        kernel = turn.reply.kernel
        assert kernel is not None, "a timed turn has a kernel"
        problem = played.record.trajectory.problem
        verdict = evaluator.evaluate(problem, kernel, seed=secrets.token_hex(16))
        name = {"problem": problem.id, "sample": played.sample, "turn": turn.index}
        row = {**name, "kernel_digest": kernel.digest, "verdict": verdict.to_dict()}
        append_line(run.path / WINNERS_FILE, row)
        on_verdict()
    return len(chosen)
