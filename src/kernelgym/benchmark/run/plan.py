"""The plan of an eval run or an import, which is its ``plan.json``.

Contract: a plan holds everything that decides prompts, answers and verdicts, so a run can be
resumed on another machine without the command's options. `check_continues` refuses another plan and
names the first field that differs; only `EvalPlan.samples` may grow.

``plan.json`` holds the fields of `EvalPlan` by their names, and ``version``.

The ``key`` of an episode in ``trajectories.jsonl`` holds the number of its sample:
``Synthetic/L1/3#2`` is sample 2 (from 0) of that problem. `episode_key` writes it and `sample_of`
reads it.

Not in the plan: options that only decide how long a run takes (workers, concurrency, rate limits).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from kernelgym.benchmark.run.options import EvalSettings
from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.errors import UnknownName, UsageError
from kernelgym.prompts.kinds import PROMPTS
from kernelgym.prompts.observer import Observer, render
from kernelgym.prompts.parts import Part
from kernelgym.records.observer_settings import observer_settings
from kernelgym.records.trajectories import EpisodeRecord
from kernelgym.retrieval.prompt_part import ready_retrieval
from kernelgym.rulesets import Ruleset, precise_rules
from kernelgym.types import Problem, Trajectory, text_digest
from kernelgym.whole_file import write_whole

PLAN_FILE = "plan.json"
_RESTORE = "restore the file, or begin a run in another folder with --out"
_VERSION = 1
_FREE = ("name", "created", "kernelgym")
"""Fields that may differ when a run is resumed."""


@dataclass(frozen=True, kw_only=True)
class EvalPlan(EvalSettings):
    """An eval run or an import, with everything that decides its prompts, answers and verdicts."""

    name: str
    policy: Mapping[str, Any]
    """Settings of the policy: ``kind``, ``model``, ``endpoint`` and its sampling options."""
    problems: tuple[tuple[str, str], ...]
    """Id and source digest of each problem."""
    kind: Literal["eval", "import"] = "eval"
    digests: Mapping[str, str] = field(default_factory=dict)
    """Digests of all problems together and of all first prompts together."""
    created: str = ""
    """Time at which the run was begun, in ISO 8601."""
    kernelgym: str = ""
    """Version of kernelgym that began the run."""

    @property
    def rules(self) -> Ruleset:
        """Ruleset of the verdicts.

        Raises:
            UsageError: If this version has other rules under the same name.
        """
        found = precise_rules(self.ruleset.partition("@")[0], self.precision, self.timing_baseline)
        if found.label != self.ruleset:
            raise UsageError(
                f"the run is judged under {self.ruleset!r}, and this version of kernelgym has "
                f"{found.label!r}; go on with version {self.kernelgym}, or begin another run"
            )
        return found

    def observer(self) -> Observer:
        """Return the observer that writes the prompts.

        Raises:
            UsageError: If a setting of prompt or context makes no sense.
        """
        if self.prompt not in PROMPTS:
            raise UnknownName("prompt", self.prompt, PROMPTS)
        parts: tuple[Part, ...] = ()
        if self.retrieval is not None:
            parts = (ready_retrieval(self.retrieval, self.language, self.device),)
        return PROMPTS[self.prompt](
            self.language,
            self.device,
            self.rules,
            self.turns,
            self.examples,
            self.hardware,
            parts,
            self.context,
            self.context_tokens,
            prompt_tokens=self.prompt_tokens,
        )

    def episode(self, problem: Problem) -> Episode:
        """Return an episode of a problem, before its first turn.

        Raises:
            UsageError: If a setting of reward or feedback makes no sense.
        """
        config = EpisodeConfig(
            language=self.language,
            ruleset=self.rules,
            max_turns=self.turns,
            reward=self.reward,
            stop_when=self.stop_when,
            feedback_level=self.feedback_level,
            feedback_tokens=self.feedback_tokens,
        )
        return Episode(problem, config)

    def record(self, played: Trajectory, observer: Observer, sample: int) -> EpisodeRecord:
        """Return the record of an episode for ``trajectories.jsonl``."""
        episode = self.episode(played.problem)
        read: dict[str, Any] = {}
        if self.kind == "eval":  # an import's prompts were written elsewhere
            before = [played.turns[:place] for place in range(len(played.turns))]
            shown = tuple(observer.retrieved(played.problem, turns)[0] for turns in before)
            read = {
                "observer": observer_settings(observer),
                "observations": tuple(
                    text_digest(render(observer.observe(played.problem, turns))) for turns in before
                ),
                "retrieved": shown if any(shown) else (),
            }
        return EpisodeRecord(
            played,
            language=self.language,
            device=self.device,
            ruleset=self.ruleset,
            reward=episode.reward.name,
            stop_when=str(episode.stop_when),
            writer=self.kind,
            key=episode_key(played.problem.id, sample),
            **read,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``plan.json``."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        fields["problems"] = [{"id": name, "digest": digest} for name, digest in self.problems]
        return {"version": _VERSION, **fields}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the plan in a file's data; unknown fields are ignored.

        Raises:
            UsageError: If the data is not a plan of this version, or a field is missing.
        """
        if data.get("version") != _VERSION or data.get("kind") not in ("eval", "import"):
            raise UsageError(
                f"a plan of version {data.get('version')!r} and kind {data.get('kind')!r}; this "
                f"version of kernelgym reads plans of version {_VERSION} and kinds eval and import"
            )
        names = {each.name for each in dataclasses.fields(cls)}
        known = {name: value for name, value in data.items() if name in names}
        try:
            known["problems"] = tuple((row["id"], row["digest"]) for row in data["problems"])
            return cls(**known)
        except (KeyError, TypeError) as error:
            raise UsageError(f"plan.json holds no valid plan: {error}") from None


def episode_key(problem: str, sample: int) -> str:
    """Return the ``key`` of an episode's record."""
    return f"{problem}#{sample}"


def sample_of(key: str) -> tuple[str, int]:
    """Return (problem's id, sample) of an episode's ``key``.

    Raises:
        UsageError: If the key is not one of an eval run.
    """
    problem, mark, sample = key.rpartition("#")
    if not (mark and problem and sample.isdecimal()):
        raise UsageError(f"the episode's key {key!r} names no sample, as in 'Synthetic/L1/3#0'")
    return problem, int(sample)


def check_continues(there: EvalPlan, now: EvalPlan, folder: Path) -> None:
    """Refuse to resume a run with another plan.

    Args:
        there: Plan in the folder.
        now: Plan of the command.
        folder: Folder of the run, for the message.

    Raises:
        UsageError: If the plans differ in more than a larger number of samples; the message names
            the field.
    """
    if now.samples < there.samples:
        raise UsageError(
            f"the run in {str(folder)!r} has samples={there.samples} already, and "
            f"samples={now.samples} was asked for; ask for as many or more, or give another --out"
        )
    for each in dataclasses.fields(EvalPlan):
        if each.name in (*_FREE, "samples"):
            continue
        before, after = getattr(there, each.name), getattr(now, each.name)
        if (found := _difference(each.name, before, after)) is not None:
            name, was, given = found
            raise UsageError(
                f"the run in {str(folder)!r} has another plan: {name} was {was}, and {given} was "
                "asked for; give another --out, or the same options to go on"
            )


def _difference(name: str, before: object, after: object) -> tuple[str, str, str] | None:
    """Return the name of the first field that differs, with both values shortened."""
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


def read_plan(folder: Path) -> EvalPlan:
    """Return the plan of a run's folder.

    Raises:
        UsageError: If there is none, or it cannot be used.
    """
    path = folder / PLAN_FILE
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{str(folder)!r} is not a run: it has no {PLAN_FILE}; begin one with `kernelgym eval "
            "--policy ... --out FOLDER`"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read {str(path)!r} ({error}); {_RESTORE}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{str(path)!r} holds no plan; {_RESTORE}")
    try:
        return EvalPlan.from_dict(data)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def write_plan(folder: Path, plan: EvalPlan) -> None:
    """Write a run's plan; an existing plan is replaced.

    Raises:
        UsageError: If it cannot be written.
    """
    write_json(folder / PLAN_FILE, plan.to_dict())


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON object to a file in one step: completely or not at all.

    Raises:
        UsageError: If it cannot be written.
    """
    try:
        write_whole(path, json.dumps(data, indent=2) + "\n", sync=True)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None
