"""Second measurements of kernels of a run: ``winners.jsonl`` and ``retimed.jsonl``.

The largest of several measured speedups is biased upwards, so the fastest turn of an episode with
two or more timed turns is judged again, in another process and on fresh inputs. So is, if asked, a
kernel whose own verdict distrusts its time (``host_busy``).

Contract: a second verdict counts only for the kernel that it judged. Kernels in the file are not
judged again, except after an `unavailable` verdict. Nothing else of the run is changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from kernelgym.benchmark.numbers.outcomes import whole, winner
from kernelgym.benchmark.recorded_runs import (
    RETIMED_FILE,
    WINNERS_FILE,
    PlayedEpisode,
    RecordedRun,
)
from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import append_line
from kernelgym.types import Evaluator, Turn


def unconfirmed(run: RecordedRun) -> list[PlayedEpisode]:
    """Return the episodes whose fastest kernel should be measured again."""
    return [
        played
        for played in run.episodes
        if (played.second is None or not played.second.valid)
        and whole(played.record.trajectory)
        and sum(turn.verdict.timed for turn in played.turns) > 1
    ]


def distrusted(run: RecordedRun) -> list[tuple[PlayedEpisode, Turn]]:
    """Return the turns whose time is doubtful or missing, since the host was busy, and episodes."""
    return [
        (played, turn)
        for played in run.episodes
        for turn in played.turns
        if turn.verdict.distrusted
    ]


def measure_winners(
    run: RecordedRun, evaluator: Evaluator, *, on_verdict: Callable[[], object] = lambda: None
) -> int:
    """Judge the fastest kernels again and keep the verdicts; return how many were judged.

    Args:
        run: The run, of a folder with a plan.
        evaluator: Evaluator with the run's rules and device. Each kernel is judged with a new seed,
            so that no cache answers.
        on_verdict: Function that is called for each verdict.

    Raises:
        UsageError: If the run has no folder, or the evaluator other rules or another device.
    """
    chosen = [(played, winner(played.turns)) for played in unconfirmed(run)]
    return _judge_again(run, chosen, evaluator, WINNERS_FILE, on_verdict)


def retime(
    run: RecordedRun, evaluator: Evaluator, *, on_verdict: Callable[[], object] = lambda: None
) -> int:
    """Judge the kernels with a distrusted or missing time again; return how many were judged.

    The new verdicts, in the run's ``retimed.jsonl``, stand in the place of the old ones where the
    run is read. Arguments and errors are those of `measure_winners`.
    """
    return _judge_again(run, distrusted(run), evaluator, RETIMED_FILE, on_verdict)


def _judge_again(
    run: RecordedRun,
    chosen: Sequence[tuple[PlayedEpisode, Turn]],
    evaluator: Evaluator,
    file: str,
    on_verdict: Callable[[], object],
) -> int:
    """Judge kernels of a run again, append the verdicts to a file, and return their number."""
    if not run.plan or not run.path.is_dir():
        raise UsageError(
            f"new verdicts are kept in a run's folder, and {str(run.path)!r} is none of an eval run"
        )
    can = evaluator.capabilities
    for played, _ in chosen:
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
    for played, turn in chosen:
        kernel = turn.reply.kernel
        assert kernel is not None, "a timed turn has a kernel"
        problem = played.record.trajectory.problem
        verdict = evaluator.evaluate(problem, kernel, seed=secrets.token_hex(16))
        name = {"problem": problem.id, "sample": played.sample, "turn": turn.index}
        row = {**name, "kernel_digest": kernel.digest, "verdict": verdict.to_dict()}
        append_line(run.path / file, row)
        on_verdict()
    return len(chosen)
