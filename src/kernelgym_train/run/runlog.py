"""A training run's folder: configuration, logs and checkpoints, from which it resumes after a kill.

::

    runs/<name>/
      config.yaml         the resolved configuration
      manifest.json       versions, machine, ruleset, seed, git commit
      secret              what the judge's inputs follow from; readable by its owner only
      metrics.jsonl       one row of numbers per step
      evaluations.jsonl   one row per evaluation on held-out problems
      trajectories.jsonl  every episode, in the schema of kernelgym.records.trajectories
      tokens.jsonl        the ids that were sampled, one row per turn
      events.jsonl        what happened to the run itself: starts, warnings, rollbacks
      verdicts.jsonl      every verdict, written before it was used
      checkpoints.jsonl   one row per checkpoint
      checkpoints/        their folders
      tensorboard/

Contract: a checkpoint counts from the moment its row is written, which is last; its row says how
long the logs were. `RunLog.resume` cuts the logs back to that length and removes checkpoint folders
that have no row, so that a run killed at any point goes on as if it had not been. `events` and
`verdicts` are never cut: a verdict that was given once is given again.

Rows of a step are appended as the step goes on. Nothing is printed; watchers may show something.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kernelgym import UsageError, append_record
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.prompts.observer import Observer
from kernelgym.records.jsonlines import append_line, append_lines, read_lines, write_lines
from kernelgym.types import Evaluator
from kernelgym_train.rollout.records import rollout_record, token_rows
from kernelgym_train.rollout.verdict_log import VerdictLog
from kernelgym_train.types import Rollout

_EVALUATIONS = "evaluations.jsonl"
_CUT_BACK = ("metrics.jsonl", _EVALUATIONS, "trajectories.jsonl", "tokens.jsonl")

_ROW = ("step", "path", "sizes", "weights", "good", "score", "time")
"""Fields of a row of checkpoints.jsonl that every backend writes."""

_SIGNS_OF_A_STEP = ("metrics.jsonl", "checkpoints.jsonl")


class Watcher:
    """Base class of receivers of what a run logs; every method does nothing by default."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Receive the numbers of one step."""

    def histograms(self, step: int, values: Mapping[str, Sequence[float]]) -> None:
        """Receive the distributions of one step."""

    def close(self) -> None:
        """Write out buffered data."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint of a training run."""

    step: int
    """Number of steps that were done."""
    folder: Path
    weights: str
    """Digest of the trained weights; empty if none was taken."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the backend added to the checkpoint's row."""

    def state(self) -> dict[str, Any]:
        """Return the state of sampler and steps that was saved with the checkpoint."""
        found: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        return found


def config_digest(config: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits, equal for equal configurations."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()[:16]


def finished_steps(folder: Path) -> int | None:
    """Return the number of steps that a run had done when it ended.

    None if it has not ended, was stopped by a guard, or has no model.
    """
    end = _end(folder)
    return None if end is None or end["stopped"] else int(end["step"])


def trained_steps(folder: Path) -> int | None:
    """Return the number of steps after which a run's ``model/`` was written; or None.

    A run that a guard stopped has written it as well.
    """
    end = _end(folder)
    return None if end is None else int(end["step"])


def _end(folder: Path) -> dict[str, Any] | None:
    """Return the event that ended a run; None if it goes on, was cut off, or has no model."""
    path = folder / "events.jsonl"
    if not path.exists() or not (folder / "model").is_dir():
        return None
    turns = ("started", "resumed", "finished")
    events = [row for _, row in read_lines(path) if row["event"] in turns]
    return events[-1] if events and events[-1]["event"] == "finished" else None


def kept_checkpoint(folder: Path, step: int | None = None, path: Path | None = None) -> Checkpoint:
    """Return a checkpoint of a run whose folder is still there.

    Args:
        folder: The run's folder.
        step: Number of steps that were done; None for the newest checkpoint.
        path: Folder of the checkpoint, in place of `step`.

    Raises:
        UsageError: If the run has no such checkpoint; lists those that it has.
    """
    rows = _kept(folder)
    if path is not None:
        rows = [row for row in rows if (folder / row["path"]).resolve() == path.resolve()]
        if not rows:
            raise UsageError(
                f"{str(path)!r} is not a checkpoint of the run in {str(folder)!r}; "
                + _those_kept(folder)
            )
    elif step is not None:
        check_from_step(folder, step)
        rows = [row for row in rows if row["step"] == step]
    if not rows:
        raise UsageError(
            f"the run in {str(folder)!r} has no checkpoint yet: it saves one every "
            "run.save_every steps; wait for the first"
        )
    return _checkpoint(folder, rows[-1])


def check_from_step(folder: Path, step: int) -> None:
    """Refuse to go on from a checkpoint that a run does not have.

    Args:
        folder: The run's folder.
        step: Steps that were done.

    Raises:
        UsageError: If none was kept after so many steps; lists those that were.
    """
    known = [row["step"] for row in _kept(folder)]
    if step in known:
        return
    raise UsageError(
        f"the run in {str(folder)!r} has no checkpoint after {step} steps; {_those_kept(folder)}"
    )


def _those_kept(folder: Path) -> str:
    """Return a clause for an error message that lists the steps of a run's checkpoints."""
    known = [str(row["step"]) for row in _kept(folder)]
    return f"those it has: {', '.join(known)}" if known else "it has none"


class RunLog:
    """A training run's folder, open for writing. Make one with `create` or `resume`."""

    def __init__(
        self,
        folder: Path,
        start: Checkpoint | None,
        *,
        writes: bool = True,
    ) -> None:
        self.folder = folder
        self.writes = writes
        """False in a process that only follows the process that writes."""
        self.start = start
        """Checkpoint from which the run continues; None for the beginning."""
        self.watchers: list[Watcher] = []
        """Watchers of what is logged."""
        self.keeps_trajectories = True
        """Whether episodes are written."""
        self.keeps_tokens = True
        """Whether the ids that were sampled are written."""
        self.secret = (folder / "secret").read_text().strip()
        self._made_parents: list[Path] = []
        """Folders above the run's folder that `create` made, the innermost first."""

    @classmethod
    def create(
        cls,
        folder: str | Path,
        config: Mapping[str, Any],
        manifest: Mapping[str, Any],
    ) -> Self:
        """Create the folder of a new run.

        Raises:
            UsageError: If there is something already, or it cannot be made.
        """
        import yaml

        folder = Path(folder)
        parents = [path for path in folder.parents if not path.exists()]
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise UsageError(
                f"there is a run in {str(folder)!r} already; continue it by --resume "
                f"{folder}, or give another name"
            ) from None
        except OSError as error:
            raise UsageError(f"cannot make {str(folder)!r}: {error.strerror}") from None
        (folder / "checkpoints").mkdir()
        descriptor = os.open(folder / "secret", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        about = dict(manifest) | {"config": config_digest(config)}
        (folder / "manifest.json").write_text(json.dumps(about, indent=2) + "\n")
        # Last: a folder without it was never a run.
        (folder / "config.yaml").write_text(yaml.safe_dump(dict(config), sort_keys=False))
        made = cls(folder, None)
        made._made_parents = parents
        made.event("started")
        return made

    @classmethod
    def resume(
        cls,
        folder: str | Path,
        *,
        good: bool = False,
        from_step: int | None = None,
    ) -> Self:
        """Open a run's folder, cut back to its last checkpoint.

        Args:
            folder: The run's folder.
            good: Take the last checkpoint at which no guard was set off.
            from_step: Take the checkpoint after so many steps. Later ones are dropped; the event
                ``went_back`` keeps their rows.

        Raises:
            UsageError: If there is no run, or no checkpoint after so many steps.
        """
        folder = Path(folder)
        if not (folder / "config.yaml").is_file():
            raise UsageError(
                f"there is no run in {str(folder)!r} (no config.yaml); give the folder that a run "
                "was started in, such as runs/<name>"
            )
        rows, kept = _rows(folder), _kept(folder)
        if from_step is not None:
            check_from_step(folder, from_step)
            kept = [row for row in kept if row["step"] <= from_step]
        kept = [row for row in kept if row["good"] or not good]
        last = kept[-1] if kept else None
        sizes = last["sizes"] if last else {}
        asked = _asked_evaluations(folder, sizes, last["step"] if last else 0)
        for name in _CUT_BACK:
            if (folder / name).exists():
                os.truncate(folder / name, sizes.get(name, 0))
        if asked:
            append_lines(folder / _EVALUATIONS, asked)
        stay = rows.index(last) + 1 if last else 0
        write_lines(folder / "checkpoints.jsonl", rows[:stay])
        named = {row["path"] for row in kept}
        for path in (folder / "checkpoints").iterdir():
            if str(path.relative_to(folder)) not in named:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        start = _checkpoint(folder, last) if last else None
        opened = cls(folder, start)
        if from_step is not None:
            opened.event("went_back", step=from_step, dropped=rows[stay:])
        opened.event("resumed", step=start.step if start else 0)
        return opened

    @classmethod
    def follow(cls, folder: str | Path) -> Self:
        """Open a run's folder that another process writes, once that process has opened it."""
        folder = Path(folder)
        rows = _rows(folder)
        return cls(folder, _checkpoint(folder, rows[-1]) if rows else None, writes=False)

    @property
    def trajectories(self) -> Path:
        """Path of the file with all episodes of the run."""
        return self.folder / "trajectories.jsonl"

    @property
    def config(self) -> dict[str, Any]:
        """Configuration that the run was started with."""
        import yaml

        found: dict[str, Any] = yaml.safe_load((self.folder / "config.yaml").read_text())
        return found

    def verdicts(
        self, evaluator: Evaluator, name: str = "verdicts", *, seeded: bool = True
    ) -> VerdictLog:
        """Return `evaluator` with its verdicts kept in a file of this run.

        Args:
            evaluator: Judges what is not kept.
            name: Name of the file.
            seeded: Whether inputs follow from the run's secret. An evaluator with a cache of its
                own judges anew what it is given a seed for.
        """
        secret = self.secret if seeded else ""
        return VerdictLog(evaluator, self.folder / f"{name}.jsonl", secret=secret)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write the metrics of a step; numbers that are not finite become null."""
        if not self.writes:
            return
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        row = {name: finite.get(name) for name in sorted(values)}
        append_line(self.folder / "metrics.jsonl", {"step": step, **row})
        for watcher in self.watchers:
            watcher.scalars(step, finite)

    def evaluation(self, step: int, values: Mapping[str, Any], **facts: Any) -> None:
        """Write the metrics of an evaluation after a number of steps."""
        if not self.writes:
            return
        append_line(self.folder / _EVALUATIONS, {"step": step, **facts, **values})
        for watcher in self.watchers:
            watcher.scalars(step, values)

    def histograms(self, step: int, values: Mapping[str, Sequence[float]]) -> None:
        """Pass the distributions of a step to the watchers; no file keeps them."""
        for watcher in self.watchers:
            watcher.histograms(step, values)

    def event(self, what: str, **facts: Any) -> None:
        """Log an event of the run itself, such as a start or a rollback."""
        if not self.writes:
            return
        append_line(
            self.folder / "events.jsonl",
            {"event": what, "time": _now(), "pid": os.getpid()} | facts,
        )

    def rollouts(
        self, rollouts: Iterable[Rollout], observer: Observer, rules: EpisodeConfig
    ) -> None:
        """Write episodes, and their tokens if the log keeps them."""
        if not self.writes:
            return
        for rollout in rollouts:
            if self.keeps_trajectories:
                record = rollout_record(rollout, observer, rules)
                append_record(self.trajectories, record)
            if self.keeps_tokens:
                for row in token_rows(rollout):
                    append_line(self.folder / "tokens.jsonl", row)

    def commit(
        self,
        step: int,
        folder: str | Path,
        state: Mapping[str, Any],
        *,
        weights: str = "",
        good: bool = True,
        score: float | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Log a checkpoint, whose folder is complete, so that it counts.

        Args:
            step: Steps that are done.
            folder: The checkpoint's folder, inside of the run's.
            state: State that the run's own parts need to go on; plain JSON data.
            weights: Digest of the trained weights.
            good: Whether no guard was set off, so that a run may go back to it.
            score: Score on held-out problems, if it was evaluated; more is better.
            facts: Fields that the backend adds to the row, under names of its own; plain JSON data.
        """
        if not self.writes:
            return
        folder = Path(folder)
        (folder / "state.json").write_text(json.dumps(state))
        sizes = {}
        for name in _CUT_BACK:
            path = self.folder / name
            sizes[name] = path.stat().st_size if path.exists() else 0
            _sync(path)
        _sync(folder / "state.json")
        row = {
            "step": step,
            "path": str(folder.resolve().relative_to(self.folder.resolve())),
            "sizes": sizes,
            "weights": weights,
            "good": good,
            "score": score,
            "time": _now(),
        }
        append_line(self.folder / "checkpoints.jsonl", {**(facts or {}), **row})
        _sync(self.folder / "checkpoints.jsonl")

    def prune(self, keep: int) -> tuple[Checkpoint, ...]:
        """Remove old checkpoint folders; the last ones, the first and the best by score stay.

        Returns:
            What was removed; its rows stay.
        """
        if not self.writes:
            return ()
        rows = _rows(self.folder)
        there = [row for row in rows if (self.folder / row["path"]).is_dir()]
        best = max(
            (row for row in there if row["score"] is not None),
            key=lambda row: (row["score"], row["step"]),
            default=None,
        )
        removed = [row for row in there[1:-keep] if row is not best]
        for row in removed:
            shutil.rmtree(self.folder / row["path"])
        return tuple(_checkpoint(self.folder, row) for row in removed)

    def discard_if_unstarted(self) -> bool:
        """Remove the folder if the run has done no step; True if removed.

        Whatever ended it before its first step, the corrected command can take the name again.
        """
        # One that is opened again before its first step has a file of checkpoints without a row.
        if not self.writes or any(_holds_rows(self.folder / name) for name in _SIGNS_OF_A_STEP):
            return False
        shutil.rmtree(self.folder)
        with contextlib.suppress(OSError):  # another run was begun in there meanwhile
            for path in self._made_parents:
                path.rmdir()
        return True

    def close(self) -> None:
        """Close the watchers."""
        for watcher in self.watchers:
            watcher.close()


def _checkpoint(folder: Path, row: Mapping[str, Any]) -> Checkpoint:
    facts = {name: value for name, value in row.items() if name not in _ROW}
    return Checkpoint(row["step"], folder / row["path"], row["weights"], facts)


def _asked_evaluations(folder: Path, sizes: Mapping[str, int], step: int) -> list[dict[str, Any]]:
    """Return the rows of `--evaluate` to keep, which truncating the file would lose."""
    path = folder / _EVALUATIONS
    cut = path.read_bytes()[sizes.get(_EVALUATIONS, 0) :] if path.exists() else b""
    rows = [json.loads(line) for line in cut.splitlines(keepends=True) if line.endswith(b"\n")]
    return [row for row in rows if "checkpoint" in row and row["step"] <= step]


def _holds_rows(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / "checkpoints.jsonl"
    return [row for _, row in read_lines(path)] if path.exists() else []


def _kept(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of checkpoints that were not pruned."""
    return [row for row in _rows(folder) if (folder / row["path"] / "state.json").is_file()]


def _sync(path: Path) -> None:
    """Flush a training run's file to disk."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
