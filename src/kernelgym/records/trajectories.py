"""Played episodes as lines of JSON: one schema, written by environments, trainers and search.

Contract: a line is one episode, whole by itself. Several processes can append to one file, and a
line cut off by a killed writer is left out (`kernelgym.records.jsonlines`); anything else that
cannot be used is refused with file, line and reason. `EpisodeRecord.from_dict` gives back what
`to_dict` took, whatever text a model wrote (but a lone high surrogate before a lone low one comes
back as the character that JSON takes them for).

The fields are listed in docs/environment.md. Tokens and log-probabilities are a trainer's own
business, and not here. Scoring anew is in `kernelgym.records.rescore`, rows to train on in
`kernelgym.records.export`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, get_args

from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import append_line, read_lines, write_lines
from kernelgym.types import (
    Ended,
    Feedback,
    Kernel,
    Problem,
    Reply,
    Score,
    Trajectory,
    Turn,
    Verdict,
)

SCHEMA = 1
"""Version of the schema of a line; a change that an older reader would misread raises it."""


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One episode as it is written to a file: what was played, and by which rules."""

    trajectory: Trajectory
    """Problem and turns that were played."""
    language: str
    """Language of the kernels."""
    device: str
    """Device that the kernels ran on."""
    ruleset: str
    """Label of the ruleset, such as ``strict@1f0c2a77``."""
    reward: str
    """Name of the preset that gave the scores."""
    stop_when: str = "correct"
    """Stop rule of the episode, as text."""
    start: str = ""
    """Source of the kernel the episode started from; empty if none was shown."""
    observer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings of the observer, by the names of its fields; see `kernelgym.records.export`."""
    observations: tuple[str, ...] = ()
    """Digest of the text that the model read before each turn; empty if not known."""
    retrieved: tuple[tuple[str, ...], ...] = ()
    """Ids of the index entries that the model read before each turn; empty if there were none."""
    writer: str = "env"
    """Program that played: ``env``, or the name of a trainer or search."""
    key: str = ""
    """Name of the episode, given by the program that played it, such as step/problem/trajectory."""
    problem_digest: str = ""
    """`Problem.digest`, which stays when the problem's source is left out."""

    def __post_init__(self) -> None:
        if not self.problem_digest:
            object.__setattr__(self, "problem_digest", self.trajectory.problem.digest)
        for name in ("observations", "retrieved"):
            given, turns = getattr(self, name), len(self.trajectory.turns)
            if given and len(given) != turns:
                raise ValueError(
                    f"the episode has {len(given)} {name} for {turns} turns; it needs "
                    "one for each turn"
                )

    @property
    def has_source(self) -> bool:
        """False if the problem's source was left out; `with_source` puts it back."""
        return self.trajectory.problem.digest == self.problem_digest

    def to_dict(self, *, source: bool = True) -> dict[str, Any]:
        """Return plain JSON data.

        Args:
            source: Keep the problem's source, so that the line can be used without its suite.
        """
        problem = self.trajectory.problem
        about: dict[str, Any] = {
            "id": problem.id,
            "suite": problem.suite,
            "level": problem.level,
            "name": problem.name,
            "family": problem.family,
            "digest": self.problem_digest,
        }
        if source and self.has_source:
            about["source"] = problem.source
        turns = self.trajectory.turns
        observations = self.observations or ("",) * len(turns)
        retrieved = self.retrieved or ((),) * len(turns)
        return {
            "schema": SCHEMA,
            "writer": self.writer,
            "key": self.key,
            "problem": about,
            "language": self.language,
            "device": self.device,
            "ruleset": self.ruleset,
            "reward": self.reward,
            "stop_when": self.stop_when,
            "max_turns": self.trajectory.horizon,
            "ended": self.trajectory.ended,
            "start": self.start,
            "observer": dict(self.observer),
            "turns": [
                _turn_to_dict(turn, read, shown)
                for turn, read, shown in zip(turns, observations, retrieved, strict=True)
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a record from `to_dict`'s output; keys it does not know are left aside.

        Raises:
            UsageError: If the schema is another one, or a field is missing or makes no sense.
        """
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if schema != SCHEMA:
            raise UsageError(
                f"an episode of schema {schema!r} cannot be read: this version of kernelgym reads "
                f"schema {SCHEMA}; give a file of trajectories that it wrote"
            )
        try:
            return cls._rebuilt(data)
        except KeyError as error:
            raise UsageError(f"the episode lacks the field {error.args[0]!r}") from None
        except (AttributeError, TypeError, ValueError) as error:
            raise UsageError(f"the episode has a field that does not fit: {error}") from None

    @classmethod
    def _rebuilt(cls, data: Mapping[str, Any]) -> Self:
        about, ended = data["problem"], data["ended"]
        if ended not in get_args(Ended):
            raise ValueError(f"ended is {ended!r}")
        names = ("id", "suite", "level", "name")
        facts = {name: about[name] for name in names} | {"family": about.get("family", "")}
        problem = Problem(**facts, source=about.get("source", ""))
        if "source" in about and problem.digest != about["digest"]:
            raise ValueError(
                f"the episode's source of problem {problem.id!r} is not what its digest says"
            )
        turns = tuple(_turn_from_dict(turn) for turn in data["turns"])
        if [turn.index for turn in turns] != list(range(len(turns))):
            raise ValueError("the episode's turns are not numbered from 0")
        read = tuple(turn.get("observation", "") for turn in data["turns"])
        shown = tuple(tuple(map(str, turn.get("retrieved", ()))) for turn in data["turns"])
        plain = ("language", "device", "ruleset", "reward", "stop_when")
        for name, kind in (*((name, str) for name in plain), ("max_turns", int)):
            if not isinstance(data[name], kind):
                raise TypeError(f"{name} is {data[name]!r}")
        return cls(
            Trajectory(problem, turns, ended, data["max_turns"]),
            **{name: data[name] for name in plain},
            start=data.get("start", ""),
            observer=data.get("observer", {}),
            observations=read if any(read) else (),
            retrieved=shown if any(shown) else (),
            writer=data.get("writer", ""),
            key=data.get("key", ""),
            problem_digest=about["digest"],
        )


def append_record(path: str | Path, record: EpisodeRecord, *, source: bool = True) -> None:
    """Append one episode to a file, which is made if it is not there.

    Args:
        path: The file.
        record: The episode.
        source: Keep the problem's source.

    Raises:
        UsageError: If the file cannot be written.
    """
    append_line(path, record.to_dict(source=source))


def write_records(
    path: str | Path, records: Iterable[EpisodeRecord], *, source: bool = True
) -> int:
    """Write a file of episodes, in the place of what was there once all are written.

    Returns:
        The number of episodes.

    Raises:
        UsageError: If the file cannot be written.
    """
    return write_lines(path, (record.to_dict(source=source) for record in records))


def read_records(
    path: str | Path,
    *,
    on_cut: Callable[[int], None] | None = None,
    on_damaged: Callable[[str], None] | None = None,
) -> Iterator[EpisodeRecord]:
    """Read a file of episodes, one after the other.

    Args:
        path: The file.
        on_cut: Function that is called with the line's number if the last line is cut off (its
            writer was killed, or is still at it) and so left out.
        on_damaged: Function that is called with a message on each other line that cannot be used,
            which is then left out; None to refuse the file.

    Raises:
        UsageError: If the file cannot be read, or a line that is not a cut last one cannot be used.
    """
    for number, data in read_lines(path, on_cut=on_cut, on_damaged=on_damaged):
        try:
            found = EpisodeRecord.from_dict(data)
        except UsageError as error:
            message = f"{path}, line {number}: {error}"
            if on_damaged is None:
                raise UsageError(message) from None
            on_damaged(message)
            continue
        yield found


def with_source(record: EpisodeRecord, problem: Problem) -> EpisodeRecord:
    """Return `record` with its problem's source, which had been left out.

    Raises:
        UsageError: If `problem` is not the problem that was played.
    """
    played = record.trajectory.problem
    if (problem.id, problem.digest) != (played.id, record.problem_digest):
        raise UsageError(
            f"the episode was played on {played.id!r} with source {record.problem_digest}, but "
            f"this is {problem.id!r} with source {problem.digest}; find the version it was "
            "played on, or record episodes with their sources"
        )
    trajectory = dataclasses.replace(record.trajectory, problem=problem)
    return dataclasses.replace(record, trajectory=trajectory)


def _turn_to_dict(turn: Turn, observation: str, retrieved: Sequence[str]) -> dict[str, Any]:
    kernel = turn.reply.kernel
    told: dict[str, Any] | None = None
    if kernel is not None:
        told = {"source": kernel.source, "language": kernel.language, "digest": kernel.digest}
    return {
        "index": turn.index,
        "observation": observation,
        "retrieved": list(retrieved),
        "action": turn.action,
        "kernel": told,
        "thought": turn.reply.thought,
        "defects": list(turn.reply.defects),
        "verdict": turn.verdict.to_dict(),
        "feedback": dataclasses.asdict(turn.feedback),
        "score": _score_to_dict(turn.score),
    }


def _turn_from_dict(data: Mapping[str, Any]) -> Turn:
    kernel = None
    if (told := data["kernel"]) is not None:
        kernel = Kernel(told["source"], told["language"])
        if kernel.digest != told.get("digest", kernel.digest):
            raise ValueError(
                f"the kernel of turn {data['index']} does not have the digest "
                "that is recorded beside it"
            )
    action, thought = data["action"], data["thought"]
    if not (isinstance(action, str) and isinstance(thought, str)):
        raise TypeError(f"action and thought of turn {data['index']} must be texts")
    return Turn(
        index=data["index"],
        action=action,
        reply=Reply(kernel, thought, tuple(data["defects"])),
        verdict=Verdict.from_dict(data["verdict"]),
        feedback=Feedback(**_known(Feedback, data["feedback"])),
        score=Score(**_known(Score, data["score"])),
    )


def _score_to_dict(score: Score) -> dict[str, Any]:
    # The parts may be a mapping that `dataclasses.asdict` cannot copy.
    plain = {field.name: getattr(score, field.name) for field in dataclasses.fields(score)}
    return plain | {"parts": dict(score.parts)}


def _known(kind: type[Feedback] | type[Score], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a mapping that `kind` has; a later version may have written more."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in data.items() if name in names}
