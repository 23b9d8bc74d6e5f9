"""States of runs, read from their folders while they go on or after.

Contract: reading changes nothing in a folder. A folder is a run of one kind by its files:

- ``plan.json``: an eval run, or an import;
- ``config.yaml`` and ``events.jsonl``: a training run;
- ``kernels/NAME/events.jsonl``: a search, of one kernel or of several.

A run is *running* while a process holds its lock (`kernelgym.records.run_lock`), *finished* once
its files say so, *interrupted* if it stopped in order before, *died* if its process ended
otherwise, and *unknown* if a process of another host has not released the lock: not every shared
file system shows locks of other hosts.

A `RunReader` reads of growing files only what was added since its last call.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernelgym.benchmark.run.folder import TRAJECTORIES, VERDICTS
from kernelgym.benchmark.run.plan import PLAN_FILE, read_plan, sample_of
from kernelgym.errors import UsageError
from kernelgym.records.run_lock import RunHolder, read_lock

ProgressKind = Literal["training", "eval", "import", "search"]
Condition = Literal["running", "finished", "interrupted", "died", "unknown"]
DEPTH = 5
"""Number of levels of folders below a place in which runs are looked for."""

_ENDS: Mapping[str, Condition] = {
    "finished": "finished",
    "evaluated": "finished",
    "interrupted": "interrupted",
}
"""Condition of a training run by its last event of a start or an end."""


@dataclass(frozen=True, slots=True)
class RunState:
    """State of a run at one moment."""

    folder: Path
    kind: ProgressKind
    condition: Condition
    step: int
    """Number of finished training steps, ended episodes, or evaluations of a search."""
    steps: int | None
    """Number of steps or episodes that the run has at its end; None if it is not known."""
    figures: Mapping[str, float]
    """Latest figures of the run, such as its scores, by name."""
    changed: float
    """Time of the last change of a file, in seconds since 1970."""
    holder: RunHolder | None = None
    """Process that writes the run, or that was killed while it did; None if there is none."""
    note: str = ""
    """Reason why the run ended, or why its files cannot be read; empty for none."""

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON data."""
        held = self.holder
        return {
            "folder": str(self.folder),
            "kind": self.kind,
            "state": self.condition,
            "step": self.step,
            "steps": self.steps,
            "figures": dict(self.figures),
            "age_s": round(max(0.0, time.time() - self.changed), 1),
            "pid": None if held is None else held.pid,
            "host": None if held is None else held.host,
            "note": self.note,
        }


def kind_of(folder: Path) -> ProgressKind | None:
    """Return the kind of run that a folder holds; None if it holds no run."""
    if (folder / PLAN_FILE).is_file():
        return "eval"
    if (folder / "config.yaml").is_file() and (folder / "events.jsonl").is_file():
        return "training"
    if any(folder.glob("kernels/*/events.jsonl")):
        return "search"
    return None


def find_runs(place: Path) -> list[Path]:
    """Return the run folders at and below a place, by name; hidden folders are left out."""
    found: list[Path] = []
    top = len(place.parts)
    for path, folders, _ in os.walk(place):
        here = Path(path)
        if kind_of(here) is not None:
            found.append(here)
            folders.clear()
        elif len(here.parts) - top >= DEPTH:
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
    return found


@dataclass(slots=True)
class _GrowingFile:
    """File of lines that still grows; each call reads only the lines added since the last call."""

    path: Path
    begin: Callable[[], object]
    """Function that is called before the file is read from its start, again if it was replaced."""
    offset: int = 0
    inode: int = -1

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the new whole lines that are JSON objects."""
        try:
            file = self.path.open("rb")
        except OSError:
            return
        with file:
            about = os.fstat(file.fileno())
            if about.st_ino != self.inode or about.st_size < self.offset:
                self.inode, self.offset = about.st_ino, 0
                self.begin()
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.offset += len(line)
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict):
                    yield row


@dataclass(slots=True)
class _Progress:
    """Progress of a run according to its files, whatever its lock says."""

    step: int = 0
    steps: int | None = None
    figures: dict[str, float] = field(default_factory=dict)
    end: Condition | None = None
    """End of the run according to its files; None if they do not say."""
    note: str = ""


class RunReader:
    """Reads the state of one run, again and again.

    Args:
        folder: Folder of the run.

    Raises:
        UsageError: If the folder holds no run.
    """

    def __init__(self, folder: Path) -> None:
        kind = kind_of(folder)
        if kind is None:
            raise UsageError(
                f"there is no run in {str(folder)!r}; `kernelgym runs list FOLDER` shows the runs "
                "below a folder"
            )
        self.folder, self._kind = folder, kind
        self._source: _Training | _Eval | _Search
        if kind == "training":
            self._source = _Training(folder)
        else:
            self._source = _Search(folder) if kind == "search" else _Eval(folder)

    def read(self) -> RunState:
        """Return the state of the run now."""
        places = [self.folder, *self.folder.glob("kernels/*")]
        locks = [read_lock(place) for place in places]
        try:
            found = self._source.read()
        except (UsageError, KeyError, TypeError, ValueError, OSError) as error:
            found = _Progress(note=f"cannot be read: {error}")
        holder = next((who for who, held in locks if held), None)
        if any(held for _, held in locks):
            condition: Condition = "running"
        elif found.end == "finished":
            condition = "finished"
        else:
            holder = next((who for who, _ in locks if who is not None), None)
            if holder is not None:
                condition = "died" if holder.is_here else "unknown"
            else:
                condition = found.end or "died"
        kind = self._source.kind if isinstance(self._source, _Eval) else self._kind
        changed = _changed(places)
        return RunState(
            self.folder,
            kind,
            condition,
            found.step,
            found.steps,
            found.figures,
            changed,
            holder,
            found.note,
        )


def read_states(place: Path) -> list[RunState]:
    """Return the states of all runs at and below a place, by name.

    Raises:
        UsageError: If there is no such folder.
    """
    if not place.is_dir():
        raise UsageError(f"there is no folder {str(place)!r}; give one that holds runs")
    return [RunReader(folder).read() for folder in find_runs(place)]


class _Training:
    """Progress of a training run."""

    _NAMES: Mapping[str, str] = {
        "reward": "reward/mean",
        "correct": "kernel/correct_rate",
        "solved": "episode/success_rate",
    }

    def __init__(self, folder: Path) -> None:
        self._folder, self._now = folder, _Progress()
        self._metrics = _GrowingFile(folder / "metrics.jsonl", self._begin)
        self._evaluations = _GrowingFile(folder / "evaluations.jsonl", lambda: None)
        self._events = _GrowingFile(folder / "events.jsonl", lambda: None)

    def _begin(self) -> None:
        self._now.step, self._now.figures = 0, {}

    def read(self) -> _Progress:
        now = self._now
        if now.steps is None:
            import yaml

            config = yaml.safe_load((self._folder / "config.yaml").read_text("utf-8"))
            now.steps = int(config["optimiser"]["steps"])
        row: Mapping[str, Any] = {}
        for row in self._metrics.rows():
            now.step = int(row["step"]) + 1
        now.figures |= {
            name: row[key] for name, key in self._NAMES.items() if row.get(key) is not None
        }
        for row in self._evaluations.rows():
            if row.get("eval/pass@1") is not None:
                now.figures["pass@1"] = row["eval/pass@1"]
        for row in self._events.rows():
            if row["event"] in ("started", "resumed"):
                now.end, now.note = None, ""
            elif row["event"] in _ENDS:
                now.end, now.note = _ENDS[row["event"]], str(row.get("stopped", ""))
        return now


class _Eval:
    """Progress of an eval run or an import."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kind: ProgressKind = "eval"
        self._ended: set[tuple[str, int]] = set()
        self._statuses: dict[tuple[str, int, int], str] = {}
        self._episodes = _GrowingFile(folder / TRAJECTORIES, self._ended.clear)
        self._verdicts = _GrowingFile(folder / VERDICTS, self._statuses.clear)

    def read(self) -> _Progress:
        plan = read_plan(self._folder)
        self.kind = plan.kind
        for row in self._episodes.rows():
            if row["ended"] not in ("", "cut"):
                self._ended.add(sample_of(row["key"]))
        for row in self._verdicts.rows():
            key = row["problem"], row["sample"], row["turn"]
            self._statuses[key] = row["verdict"]["status"]
        samples = {key[:2] for key in self._statuses}
        solved = {key[:2] for key, status in self._statuses.items() if status == "correct"}
        figures: dict[str, float] = {"judged": len(self._statuses)}
        if samples:
            figures["solved"] = len(solved) / len(samples)
        planned = len(plan.problems) * plan.samples
        end: Condition = "finished" if len(self._ended) >= planned else "interrupted"
        return _Progress(len(self._ended), planned, figures, end)


class _Search:
    """Progress of a search of one kernel or several."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kernels: dict[Path, _Kernel] = {}

    def read(self) -> _Progress:
        for path in sorted(self._folder.glob("kernels/*/events.jsonl")):
            if path not in self._kernels:
                self._kernels[path] = _Kernel(path)
        kernels = list(self._kernels.values())
        for kernel in kernels:
            kernel.read()
        figures: dict[str, float] = {"best": max(math.exp(each.best) for each in kernels)}
        if len(kernels) > 1:
            figures["kernels"] = len(kernels)
        reasons = sorted({each.stopped for each in kernels if each.stopped})
        end: Condition | None = None
        if all(each.finished for each in kernels):
            end = "interrupted" if "interrupted" in reasons else "finished"
        evaluations = sum(each.evaluations for each in kernels)
        return _Progress(evaluations, None, figures, end, ", ".join(reasons))


class _Kernel:
    """Progress of the search of one kernel."""

    def __init__(self, path: Path) -> None:
        self._events = _GrowingFile(path, self._begin)
        self._begin()

    def _begin(self) -> None:
        self.evaluations, self.best = 0, 0.0
        self.finished, self.stopped = False, ""

    def read(self) -> None:
        for row in self._events.rows():
            match row["event"]:
                case "judged":
                    self.evaluations += 1
                    self.best = max(self.best, row["value"] or 0.0)
                case "resumed":
                    self.finished, self.stopped = False, ""
                case "stopped":
                    self.stopped = str(row["reason"])
                case "finished":
                    self.finished = True
                    self.best = math.log(row["result"]["speedup"])


def _changed(places: list[Path]) -> float:
    """Return the time of the last change of a file in these folders."""
    newest = 0.0
    for place in places:
        try:
            for entry in os.scandir(place):
                newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
        except OSError:
            continue
    return newest
