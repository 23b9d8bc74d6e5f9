"""Reading recorded runs: eval runs, imports, training runs, searches, files of episodes.

Contract: reading writes nothing and runs nothing. `read_run` returns one `RecordedRun` for each of:

- a folder with ``plan.json``: an eval run or an import, whose plan names problems and samples, so
  that what is missing can be counted;
- a folder with ``trajectories.jsonl`` and no plan: a training run (``manifest.json``), or episodes;
- a file of trajectories, as environments record them;
- the folder of a search (``kernels/NAME/events.jsonl``).

A last line that is incomplete is left out and noted; any other damage is refused with file and
line, or left out and noted if the caller wants what is left (`partial`). So is a run without
``verdicts.jsonl`` whose episodes were judged. Other missing files are allowed: usages, prices and
second measurements are then unknown.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernelgym.benchmark.claims import CLAIMS_FILE, Claim, read_claims
from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome, outcome_of, winner
from kernelgym.benchmark.run.folder import FAILURES, GENERATIONS, TRAJECTORIES, VERDICTS
from kernelgym.benchmark.run.generations import AnswerKey, Generation, recorded_verdict
from kernelgym.benchmark.run.plan import PLAN_FILE, EvalPlan, read_plan
from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import read_lines
from kernelgym.records.trajectories import EpisodeRecord, read_records
from kernelgym.types import Turn, Verdict

RunKind = Literal["eval", "import", "training", "episodes", "search"]
SampleKey = tuple[str, int]
"""Key of an episode: the problem's id, and the number of its sample from 0."""

_RESTORE = "restore the file, or report another run"
_REPAIR = "repair or remove the line"
RETIMED_FILE = "retimed.jsonl"
"""Name of the file of new verdicts in the place of those whose time was distrusted; see
`kernelgym.benchmark.winners`."""
WINNERS_FILE = "winners.jsonl"
"""Name of the file of second verdicts of best kernels; see `kernelgym.benchmark.winners`."""


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A request that gave no answer."""

    problem: str
    sample: int
    turn: int
    kind: str
    message: str
    tries: int = 1


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """One episode of a run."""

    record: EpisodeRecord
    sample: int
    """Number of the problem's sample, from 0."""
    answers: Mapping[int, Generation] = field(default_factory=dict)
    """Answers by number of the turn."""
    second: Verdict | None = None
    """Second verdict of the best turn's kernel; None if it was not measured again."""

    @property
    def key(self) -> SampleKey:
        """Key of the episode in the run."""
        return self.record.trajectory.problem.id, self.sample

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Turns of the episode."""
        return self.record.trajectory.turns

    @property
    def outcome(self) -> EpisodeOutcome:
        """Verdicts of the episode that rates and speeds count."""
        return outcome_of(self.record.trajectory, self.second)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A recorded run, read from its files."""

    name: str
    kind: RunKind
    path: Path
    episodes: tuple[PlayedEpisode, ...]
    plan: EvalPlan | None = None
    """Plan of an eval run or an import."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[FailedRequest, ...] = ()
    claims: Mapping[SampleKey, Claim] = field(default_factory=dict)
    """Results of the same kernels from another harness."""
    planned: tuple[str, ...] = ()
    """Ids of the plan's problems; without a plan, those of the played problems."""
    samples: int | None = None
    """Number of planned episodes of each problem; None if the number is not planned."""
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Rates of a training run, step by step."""
    notes: tuple[str, ...] = ()
    """Notes on the files, such as an incomplete last line."""

    @property
    def outcomes(self) -> list[EpisodeOutcome]:
        """Outcomes of all episodes."""
        return [played.outcome for played in self.episodes]

    @property
    def rulesets(self) -> tuple[str, ...]:
        """Labels of the verdicts' rulesets, in order of appearance."""
        return tuple(dict.fromkeys(played.record.ruleset for played in self.episodes))

    @property
    def digests(self) -> dict[str, str]:
        """Digest of each problem's source, by id."""
        found = {each.key[0]: each.record.problem_digest for each in self.episodes}
        return (dict(self.plan.problems) if self.plan is not None else {}) | found

    @property
    def missing(self) -> dict[SampleKey, str]:
        """Reasons of planned episodes that are missing or were cut, by key."""
        why = {(each.problem, each.sample): each.kind for each in self.failures}
        cut = {each.key for each in self.episodes if each.record.trajectory.ended == "cut"}
        there = {each.key for each in self.episodes}
        found = {key: why.get(key, "cut") for key in cut}
        for problem in self.planned if self.samples is not None else ():
            for sample in range(self.samples or 0):
                if (problem, sample) not in there:
                    found[problem, sample] = why.get((problem, sample), "not played")
        return found


class _Notes(list[str]):
    """Notes on a run's files; damage is refused, or noted if the caller accepts a partial run."""

    def __init__(self, partial: bool) -> None:
        super().__init__()
        self._partial = partial

    def damaged(self, message: str) -> None:
        """Note that something is left out.

        Raises:
            UsageError: If the caller wants the whole run.
        """
        if not self._partial:
            raise UsageError(f"{message}, or report what is left with --partial")
        self.append(f"left out: {message}")


def read_run(path: str | Path, *, partial: bool = False) -> RecordedRun:
    """Return the run at a path.

    Args:
        path: A run's folder, a file of trajectories, or the folder of a search.
        partial: Leave damaged lines and missing files out, with a note on each.

    Raises:
        UsageError: If the path holds no run, the run holds no episode, or files are damaged and
            `partial` is not set.
    """
    path, notes = Path(path), _Notes(partial)
    if path.is_file():
        run = RecordedRun(path.stem, "episodes", path, tuple(_numbered(_records(path, notes))))
        return _checked(dataclasses.replace(run, notes=tuple(notes)))
    if not path.is_dir():
        raise UsageError(
            f"there is nothing at {str(path)!r}; give a run's folder (`kernelgym eval --out "
            "FOLDER` makes one) or a file of trajectories"
        )
    if (path / PLAN_FILE).exists():
        return _checked(_planned(path, notes))
    if (path / TRAJECTORIES).exists():
        return _checked(_unplanned(path, notes))
    if (path / "kernels").is_dir() or (path / "events.jsonl").exists():
        from kernelgym.benchmark.searches import read_search

        name, records = read_search(path)
        return _checked(RecordedRun(name, "search", path, tuple(_numbered(records))))
    raise UsageError(
        f"{str(path)!r} is not a run: it holds neither {PLAN_FILE} nor {TRAJECTORIES}; give the "
        "folder that `kernelgym eval`, `kernelgym import` or `kernelgym-train` wrote"
    )


def _checked(run: RecordedRun) -> RecordedRun:
    """Return a run with the ids of its problems; refuse an empty one.

    Raises:
        UsageError: If it is empty, or holds an episode twice.
    """
    if not any(played.turns for played in run.episodes) and not run.failures:
        what = (
            "has no verdict yet; judge it first"
            if run.kind == "import"
            else "holds no episode; play one first"
        )
        raise UsageError(f"the run in {str(run.path)!r} {what}")
    keys = [played.key for played in run.episodes]
    twice = next((key for key in keys if keys.count(key) > 1), None) if _repeated(keys) else None
    if twice is not None:
        raise UsageError(f"{run.path}: sample {twice[1]} of {twice[0]} is there more than once")
    if run.planned:
        return run
    return dataclasses.replace(run, planned=tuple(dict.fromkeys(key[0] for key in keys)))


def _repeated(keys: list[SampleKey]) -> bool:
    return len(set(keys)) != len(keys)


def _planned(path: Path, notes: _Notes) -> RecordedRun:
    plan = read_plan(path)
    answers = _answers(path / GENERATIONS, notes)
    second_verdicts = _verdicts(path / WINNERS_FILE, notes).items()
    seconds = {key[:2]: verdict for key, verdict in second_verdicts}
    retimed = _verdicts(path / RETIMED_FILE, notes)
    there = path / TRAJECTORIES
    # An episode that was cut and played on has two lines; the later one counts.
    last: dict[SampleKey, PlayedEpisode] = {}
    for played in _numbered(_records(there, notes)) if there.exists() else ():
        last[played.key] = _with_new_times(played, retimed)
    failures = tuple(_failures(path / FAILURES, notes))
    if (path / VERDICTS).exists():
        _verdicts(path / VERDICTS, notes)
    elif any(played.turns for played in last.values()):
        notes.damaged(f"{path / VERDICTS} is missing, and episodes were judged; {_RESTORE}")
    unanswered = {(each.problem, each.sample, each.turn) for each in failures}
    grows = plan.context == "transcript"
    episodes = []
    for played in last.values():
        if grows and (*played.key, len(played.turns)) not in unanswered:
            played = _with_full_context(played)
        best = _winning_kernel(played)
        second = seconds.get(played.key)
        episodes.append(
            dataclasses.replace(
                played,
                answers=answers.get(played.key, {}),
                second=second[1] if second and second[0] == best else None,
            )
        )
    ids = tuple(name for name, _ in plan.problems)
    claims = read_claims(path / CLAIMS_FILE) if (path / CLAIMS_FILE).exists() else {}
    return RecordedRun(
        plan.name or path.name,
        plan.kind,
        path,
        tuple(_in_order(episodes, ids)),
        plan,
        _machine(path),
        failures,
        claims,
        ids,
        plan.samples,
        notes=tuple(notes),
    )


def _with_new_times(
    played: PlayedEpisode, retimed: Mapping[AnswerKey, tuple[str, Verdict]]
) -> PlayedEpisode:
    """Return an episode with new verdicts in the place of those whose time was distrusted."""
    turns = []
    for turn in played.turns:
        digest, verdict = retimed.get(AnswerKey(*played.key, turn.index), ("", None))
        kernel = turn.reply.kernel
        usable = verdict is not None and verdict.valid and kernel and kernel.digest == digest
        if usable and verdict is not None and turn.verdict.distrusted:
            turn = dataclasses.replace(turn, verdict=verdict)
        turns.append(turn)
    trajectory = dataclasses.replace(played.record.trajectory, turns=tuple(turns))
    return dataclasses.replace(
        played, record=dataclasses.replace(played.record, trajectory=trajectory)
    )


def _with_full_context(played: PlayedEpisode) -> PlayedEpisode:
    """Return an episode that a full context cut, marked as ended because its budget was spent.

    An append-only context that is full cuts an episode that was judged to its end; leaving it out
    would favour models with long answers.
    """
    trajectory = played.record.trajectory
    if trajectory.ended != "cut" or not played.turns or not trajectory.valid:
        return played
    spent = dataclasses.replace(trajectory, ended="budget")
    return dataclasses.replace(played, record=dataclasses.replace(played.record, trajectory=spent))


def _unplanned(path: Path, notes: _Notes) -> RecordedRun:
    episodes = tuple(_numbered(_records(path / TRAJECTORIES, notes)))
    manifest = path / "manifest.json"
    about = _object(manifest) if manifest.exists() else {}
    return RecordedRun(
        path.resolve().name,
        "training" if about else "episodes",
        path,
        episodes,
        machine={**about.get("machine", {}), **about.get("versions", {})} or _machine(path),
        curves=_curves(path / "metrics.jsonl") if about else {},
        notes=tuple(notes),
    )


def _records(path: Path, notes: _Notes) -> Iterator[EpisodeRecord]:
    yield from read_records(path, on_cut=_noting(path, notes), on_damaged=notes.damaged)


def _noting(path: Path, notes: _Notes) -> Any:
    def note(number: int) -> None:
        notes.append(f"line {number} of {path.name} is incomplete and left out")

    return note


def _numbered(records: Iterable[EpisodeRecord]) -> Iterator[PlayedEpisode]:
    """Yield episodes with the numbers in their keys, or else numbered problem by problem."""
    next_of: dict[str, int] = defaultdict(int)
    for record in records:
        identity = record.trajectory.problem.id
        name, mark, number = record.key.rpartition("#")
        if mark and name == identity and number.isdecimal():
            yield PlayedEpisode(record, int(number))
            continue
        yield PlayedEpisode(record, next_of[identity])
        next_of[identity] += 1


def _in_order(episodes: Iterable[PlayedEpisode], ids: tuple[str, ...]) -> list[PlayedEpisode]:
    place = {identity: number for number, identity in enumerate(ids)}
    return sorted(episodes, key=lambda each: (place.get(each.key[0], len(place)), each.sample))


def _rows(path: Path, notes: _Notes) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if path.exists():
        yield from read_lines(path, on_cut=_noting(path, notes), on_damaged=notes.damaged)


def _answers(path: Path, notes: _Notes) -> dict[SampleKey, dict[int, Generation]]:
    found: dict[SampleKey, dict[int, Generation]] = defaultdict(dict)
    for number, row in _rows(path, notes):
        try:
            problem, sample, turn = AnswerKey.of(row)
            found[problem, sample][turn] = Generation.from_dict(row)
        except (KeyError, TypeError) as error:
            notes.damaged(f"{path}, line {number}: not an answer ({error}); {_REPAIR}")
    return found


def _failures(path: Path, notes: _Notes) -> Iterator[FailedRequest]:
    for number, row in _rows(path, notes):
        try:
            found = FailedRequest(
                *AnswerKey.of(row),
                str(row["kind"]),
                str(row.get("message", "")),
                int(row.get("tries", 1)),
            )
        except (KeyError, TypeError, ValueError) as error:
            notes.damaged(f"{path}, line {number}: not a failure ({error}); {_REPAIR}")
            continue
        yield found


def _verdicts(path: Path, notes: _Notes) -> dict[AnswerKey, tuple[str, Verdict]]:
    """Return the digest of the kernel and the verdict of each answer in a file."""
    found = {}
    for number, row in _rows(path, notes):
        try:
            found[AnswerKey.of(row)] = recorded_verdict(row, f"{path}, line {number}")
        except UsageError as error:
            notes.damaged(f"{error}; {_REPAIR}")
        except (KeyError, TypeError) as error:
            notes.damaged(f"{path}, line {number}: not a verdict ({error}); {_REPAIR}")
    return found


def _winning_kernel(played: PlayedEpisode) -> str:
    kernel = winner(played.turns).reply.kernel if played.turns else None
    return kernel.digest if kernel else ""


def _curves(path: Path) -> dict[str, tuple[float, ...]]:
    """Return a training run's rates by step; a missing rate repeats the last one."""
    found: dict[str, list[float]] = defaultdict(list)
    for _, row in _rows(path, _Notes(partial=False)):
        for name in ("turn_1/correct_rate", "episode/success_rate", "kernel/cheat_rate"):
            value = row.get(name)
            if value is not None:
                found[name].append(float(value))
            elif found[name]:
                found[name].append(found[name][-1])
    return {name: tuple(values) for name, values in found.items() if values}


def _machine(path: Path) -> Mapping[str, Any]:
    there = path / "machine.json"
    return _object(there) if there.exists() else {}


def _object(path: Path) -> Mapping[str, Any]:
    """Return the JSON object of a file of a recorded run.

    Raises:
        UsageError: If the file cannot be read, or holds no JSON object.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read {str(path)!r} ({error}); {_RESTORE}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path} holds no JSON object; {_RESTORE}")
    return data
