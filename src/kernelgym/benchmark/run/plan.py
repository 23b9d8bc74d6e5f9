"""What an eval run does, to the last detail: its ``plan.json``.

Contract: a plan holds everything that decides prompts, answers and verdicts, so that a run goes on
on another machine without the command's options. `check_continues` refuses to go on with another
plan, by the name of the first field that differs. Only `Plan.samples` may grow.

Fields, in the file as here:

- ``version``: 1; ``kind``: ``eval``; ``name``; ``created``; ``kernelgym``: version that began it;
- ``policy``: mapping of ``kind``, ``model``, ``endpoint`` and the sampling options;
- ``suite``, ``sizes``, ``problems``: ids with the digests of their sources;
- ``samples``, ``turns``, ``seed``;
- ``language``, ``ruleset`` (its label), ``precision``, ``baseline``, ``device``, ``timing``;
- ``prompt``, ``context``, ``reward``, ``feedback``: mappings, as `Plan` describes them;
- ``digests``: ``problems`` and ``prompts``, each of all problems together.

The sample's number of an episode stands in the ``key`` of its line in ``trajectories.jsonl``:
``Synthetic/L1/3#2`` is sample 2 (from 0) of that problem; `episode_key` and `sample_of` are its
two directions.

It does not cover what only decides how long a run takes (workers, concurrency, limits of rates).
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kernelgym.episodes.episode import Episode
from kernelgym.errors import UnknownName, UsageError
from kernelgym.prompts.kinds import PROMPTS
from kernelgym.prompts.observer import Observer, render
from kernelgym.records.observer_settings import observer_settings
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.retrieval.part import ready_retrieval
from kernelgym.rulesets import Ruleset, precise_rules
from kernelgym.types import Problem, Trajectory, text_digest

__all__ = [
    "PLAN_FILE",
    "WRITER",
    "Plan",
    "check_continues",
    "episode_key",
    "read_plan",
    "sample_of",
    "write_plan",
]

PLAN_FILE = "plan.json"
_RESTORE = "restore the file, or begin a run in another folder with --out"
WRITER = "eval"
"""`EpisodeRecord.writer` of a run's episodes."""
_VERSION = 1
_FREE = ("name", "created", "kernelgym")
"""Fields that may differ when a run is gone on with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One eval run."""

    name: str
    policy: Mapping[str, Any]
    suite: str
    problems: tuple[tuple[str, str], ...]
    """(id, digest of the source) of each."""
    samples: int = 1
    """Episodes of each problem."""
    turns: int = 1
    """Most turns of an episode."""
    language: str = "triton"
    ruleset: str = "strict"
    """The label, such as ``strict@1f0c2a77``."""
    precision: str = ""
    """In place of the ruleset's; empty for its own."""
    baseline: str = ""
    """What kernels are timed against, in place of the ruleset's; empty for its own."""
    device: str = "cpu"
    """On which kernels are judged, and of which prompts tell."""
    timing: bool = True
    """Whether correct kernels are timed."""
    prompt: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """``kind``, ``examples``, ``hardware``, ``retrieval``, ``tokens``."""
    context: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """``policy`` (a name or the fields of a `Context`) and ``tokens``."""
    reward: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """``preset`` and ``stop_when``."""
    feedback: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """``level`` and ``tokens``."""
    sizes: str = "full"
    seed: int = 0
    """Of the sampling, for policies that can be seeded."""
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    created: str = ""
    kernelgym: str = ""

    @property
    def rules(self) -> Ruleset:
        """The ruleset.

        Raises:
            UsageError: If this version has other rules under its label.
        """
        found = precise_rules(self.ruleset.partition("@")[0], self.precision, self.baseline)
        if found.label != self.ruleset:
            raise UsageError(
                f"the run is judged under {self.ruleset!r}, and this version of kernelgym has "
                f"{found.label!r}; go on with version {self.kernelgym}, or begin another run"
            )
        return found

    def observer(self) -> Observer:
        """Return what writes the prompts.

        Raises:
            UsageError: If a setting of prompt or context makes no sense.
        """
        kind = self.prompt.get("kind", "full")
        if kind not in PROMPTS:
            raise UnknownName("prompt", kind, PROMPTS)
        retrieval = self.prompt.get("retrieval")
        shown: dict[str, Any] = {
            "hardware": self.prompt.get("hardware"),
            "context": self.context.get("policy", "recent"),
        }
        if "tokens" in self.context:
            shown["context_tokens"] = self.context["tokens"]
        return PROMPTS[kind](
            *(self.language, self.device, self.rules, self.turns),
            examples=self.prompt.get("examples", "one_shot"),
            parts=()
            if retrieval is None
            else (ready_retrieval(retrieval, self.language, self.device),),
            prompt_tokens=self.prompt.get("tokens"),
            **shown,
        )

    def episode(self, problem: Problem) -> Episode:
        """Return an episode that has not begun.

        Raises:
            UsageError: If a setting of reward or feedback makes no sense.
        """
        given = {
            "reward": self.reward.get("preset"),
            "stop_when": self.reward.get("stop_when"),
            "feedback_level": self.feedback.get("level"),
            "feedback_tokens": self.feedback.get("tokens"),
        }
        known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return Episode(
            problem, language=self.language, ruleset=self.rules, max_turns=self.turns, **known
        )

    def record(self, played: Trajectory, observer: Observer, sample: int) -> EpisodeRecord:
        """Return an episode as ``trajectories.jsonl`` holds it."""
        episode = self.episode(played.problem)
        before = [played.turns[:place] for place in range(len(played.turns))]
        read = tuple(
            text_digest(render(observer.observe(played.problem, turns))) for turns in before
        )
        shown = tuple(observer.retrieved(played.problem, turns)[0] for turns in before)
        return EpisodeRecord(
            played,
            language=self.language,
            device=self.device,
            ruleset=self.ruleset,
            reward=episode.reward.name,
            stop_when=str(episode.stop_when),
            observer=observer_settings(observer),
            observations=read,
            retrieved=shown if any(shown) else (),
            writer=WRITER,
            key=episode_key(played.problem.id, sample),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what ``plan.json`` holds."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields["problems"] = [{"id": name, "digest": digest} for name, digest in self.problems]
        plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in fields.items()}
        return {"version": _VERSION, "kind": "eval", **plain}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a plan; fields of later versions are left aside.

        Raises:
            UsageError: If it is none of an eval run, or a field is missing.
        """
        if data.get("version") != _VERSION or data.get("kind") != "eval":
            raise UsageError(
                f"a plan of version {data.get('version')!r} and kind {data.get('kind')!r}; this "
                f"version of kernelgym goes on with plans of version {_VERSION} and kind 'eval'"
            )
        names = {field.name for field in dataclasses.fields(cls)}
        known = {name: value for name, value in data.items() if name in names}
        try:
            known["problems"] = tuple((row["id"], row["digest"]) for row in data["problems"])
            return cls(**known)
        except (KeyError, TypeError) as error:
            raise UsageError(f"a plan that makes no sense: {error}") from None


def episode_key(problem: str, sample: int) -> str:
    """Return the ``key`` of an episode's record."""
    return f"{problem}#{sample}"


def sample_of(key: str) -> tuple[str, int]:
    """Return (problem's id, sample) of an episode's ``key``.

    Raises:
        UsageError: If it is none of an eval run.
    """
    problem, mark, sample = key.rpartition("#")
    if not (mark and problem and sample.isdecimal()):
        raise UsageError(f"the episode's key {key!r} names no sample, as in 'Synthetic/L1/3#0'")
    return problem, int(sample)


def check_continues(there: Plan, now: Plan, folder: Path) -> None:
    """Refuse to go on with a run by another plan.

    Args:
        there: The folder's plan.
        now: What was asked for.
        folder: Of the run, for the message.

    Raises:
        UsageError: If they differ, but for more samples; it names the field.
    """
    if now.samples < there.samples:
        raise UsageError(
            f"the run in {str(folder)!r} has samples={there.samples} already, and "
            f"samples={now.samples} was asked for; ask for as many or more, or give another --out"
        )
    for field in dataclasses.fields(Plan):
        if field.name in (*_FREE, "samples"):
            continue
        before, after = getattr(there, field.name), getattr(now, field.name)
        if (found := _difference(field.name, before, after)) is not None:
            name, was, given = found
            raise UsageError(
                f"the run in {str(folder)!r} has another plan: {name} was {was}, and {given} was "
                "asked for; give another --out, or the same options to go on"
            )


def _difference(name: str, before: object, after: object) -> tuple[str, str, str] | None:
    """Return the first field that differs, and both values in short."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            found = _difference(f"{name}.{key}", before.get(key), after.get(key))
            if found is not None:
                return found
        return None
    # A plan from a file holds lists where another holds tuples.
    if json.loads(json.dumps(before)) == json.loads(json.dumps(after)):
        return None
    if name == "problems" and isinstance(before, Sequence) and isinstance(after, Sequence):
        return name, f"{len(before)} with other ids or sources", f"{len(after)} others"
    return name, _short(before), _short(after)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def read_plan(folder: Path) -> Plan:
    """Return the plan of a run's folder.

    Raises:
        UsageError: If there is none, or it cannot be used.
    """
    path = folder / PLAN_FILE
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{str(folder)!r} is no run: it holds no {PLAN_FILE}; begin one with `kernelgym eval "
            "--policy ... --out FOLDER`"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read {str(path)!r} ({error}); {_RESTORE}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{str(path)!r} holds no plan; {_RESTORE}")
    try:
        return Plan.from_dict(data)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def write_plan(folder: Path, plan: Plan) -> None:
    """Write a run's plan, in the place of one that is there.

    Raises:
        UsageError: If it cannot be written.
    """
    write_json(folder / PLAN_FILE, plan.to_dict())


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write one JSON object, whole or not at all.

    Raises:
        UsageError: If it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(draft, "x", encoding="utf-8") as file:
            json.dump(data, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None
