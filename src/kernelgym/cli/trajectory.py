"""``kernelgym show-trajectory``: lists the episodes of a file, or shows one turn by turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from kernelgym.cli.console import print_source, print_table, print_text, say
from kernelgym.cli.options import Command
from kernelgym.cli.transcript import (
    print_answer,
    print_heading,
    print_returns,
    print_turn,
    problem_title,
)
from kernelgym.errors import UsageError
from kernelgym.records.trajectories import EpisodeRecord, read_records
from kernelgym.types import GAMMA, Kernel, Turn


@dataclass(frozen=True, kw_only=True)
class ShowTrajectoryCommand(Command):
    """List the episodes of a file of trajectories, one line each; or show one turn by turn."""

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """A JSONL file of episodes."""
    index: int | None = None
    """Number of the episode to show, from 1; -1 is the last."""
    best: bool = False
    """Show the episode with the best turn: correct, then the highest speedup_low, then score."""
    turn: int | None = None
    """Number of the only turn to show, from 1, with its whole answer and kernel."""
    prompt: bool = False
    """Also show the prompt of the turn (with --turn)."""
    gamma: float = GAMMA
    """Discount factor of the returns that are shown."""

    def run(self) -> int:
        """Print the table or the episode; return the exit code."""
        if self.index is not None and self.best:
            raise UsageError("--index and --best each choose an episode; give one of them")
        if not 0.0 <= self.gamma <= 1.0:
            raise UsageError(f"--gamma must lie in [0, 1], got {self.gamma:g}")
        if self.prompt and self.turn is None:
            raise UsageError("--prompt shows the prompt of one turn; name it with --turn")
        records = list(read_records(self.file, on_cut=note_cut))
        if not records:
            raise UsageError(f"{self.file} holds no episode")
        if self.best:
            place = max(range(len(records)), key=lambda place: _rank(records[place]))
        elif self.index is not None:
            place = _place(self.index, len(records), "--index", "episodes")
        elif len(records) == 1:
            place = 0
        elif self.turn is not None:
            raise UsageError(
                f"--turn needs an episode: {self.file} holds {len(records)}; give --index or --best"
            )
        else:
            rows = [_row(number, record) for number, record in enumerate(records, 1)]
            print_table(_COLUMNS, rows)
            return 0
        record = records[place]
        if self.turn is None:
            _heading(place + 1, record)
            _episode(record, self.gamma)
            return 0
        turns = record.trajectory.turns
        chosen = turns[_place(self.turn, len(turns), "--turn", "turns")]
        _heading(place + 1, record)
        _turn(record, chosen, self.prompt)
        return 0


_COLUMNS = ("#", "problem", "language", "device", "turns", "ended", "best", "speedup", "score")


def note_cut(line: int) -> None:
    """Print on standard error that the last line of a file was left out."""
    say(f"note: line {line} is incomplete and left out")


def _place(number: int, count: int, option: str, what: str) -> int:
    if number == 0 or not -count <= number <= count:
        raise UsageError(f"{option} {number}: there are {count} {what}, counted from 1")
    return number - 1 if number > 0 else count + number


def _rank(record: EpisodeRecord) -> tuple[bool, float, float]:
    turns = record.trajectory.turns
    return max(
        ((t.verdict.correct, t.verdict.speedup_low, t.score.total) for t in turns),
        default=(False, 0.0, float("-inf")),
    )


def _row(number: int, record: EpisodeRecord) -> tuple[object, ...]:
    trajectory = record.trajectory
    best = trajectory.best
    return (
        number,
        trajectory.problem.id,
        record.language,
        record.device,
        len(trajectory.turns),
        trajectory.ended or "early",
        best.verdict.status.value if best else "-",
        f"{best.verdict.speedup:.2f}x" if best and best.verdict.timed else "-",
        f"{best.score.total:.3f}" if best else "-",
    )


def _heading(number: int, record: EpisodeRecord) -> None:
    trajectory = record.trajectory
    print_heading(
        f"episode {number}: {problem_title(trajectory.problem)}: {record.language} on "
        f"{record.device}"
    )
    key = f", {record.key}" if record.key else ""
    print_text(
        f"played by {record.writer or 'unknown'}{key}; ruleset {record.ruleset}, reward "
        f"{record.reward}, stop {record.stop_when}, {trajectory.horizon} turns",
        "dim",
    )


def _episode(record: EpisodeRecord, gamma: float) -> None:
    earlier = Kernel(record.start, record.language) if record.start else None
    for turn in record.trajectory.turns:
        kernel = turn.reply.kernel
        print_answer(turn.index + 1, kernel, earlier, turn.reply.thought)
        print_turn(turn)
        earlier = kernel or earlier
    print_returns(record.trajectory, gamma)


def _turn(record: EpisodeRecord, turn: Turn, prompt: bool) -> None:
    if prompt:
        from kernelgym.prompts.observer import render
        from kernelgym.records.export import read_before

        whole = source_of(record)
        print_text("prompt of the turn:", "bold")
        print_text(render(read_before(whole, turn.index)))
    print_text(f"\nturn {turn.index + 1}", "bold")
    if turn.reply.kernel is None:
        print_text(turn.action)
    else:
        if turn.reply.thought:
            print_text(turn.reply.thought, "italic dim")
        print_source(turn.reply.kernel.source)
    print_turn(turn)
    scored = {name: value for name, value in turn.score.parts.items() if value}
    rows = [(name, f"{value:.3f}") for name, value in scored.items()]
    print_table(("part of the score", "value"), [*rows, ("total", f"{turn.score.total:.3f}")])


def source_of(record: EpisodeRecord) -> EpisodeRecord:
    """Return `record` with its problem's source, from its suite if the file has none.

    Raises:
        UsageError: If the suite has no such problem, or another version of it.
    """
    if record.has_source:
        return record
    from kernelgym.records.trajectories import with_source
    from kernelgym.suites import get_problem

    found = get_problem(record.trajectory.problem.id)
    return with_source(record, found)
