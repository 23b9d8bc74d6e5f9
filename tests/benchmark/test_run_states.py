"""States of runs by their folders: kind, condition, steps and figures."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kernelgym.benchmark import evaluate
from kernelgym.benchmark.run_states import RunReader, RunState, find_runs, read_states
from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import append_line
from kernelgym.records.run_lock import LOCK_FILE, RunLock
from kernelgym.testing import ScriptedEvaluator


def training(folder: Path, *events: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("optimiser:\n  steps: 6\n")
    for event in ({"event": "started"}, *events):
        append_line(folder / "events.jsonl", event)
    return folder


def search(folder: Path, name: str, *events: Mapping[str, Any]) -> Path:
    (folder / "kernels" / name).mkdir(parents=True)
    for event in ({"event": "search"}, *events):
        append_line(folder / "kernels" / name / "events.jsonl", event)
    return folder


def state_of(folder: Path) -> RunState:
    return RunReader(folder).read()


def left_behind(folder: Path, host: str) -> None:
    held = {"pid": 77, "host": host, "since": "2026-01-01T00:00:00Z"}
    (folder / LOCK_FILE).write_text(json.dumps(held))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), "died"),
        (({"event": "finished", "step": 6, "stopped": ""},), "finished"),
        (({"event": "interrupted"},), "interrupted"),
        (({"event": "interrupted"}, {"event": "resumed", "step": 2}), "died"),
        (({"event": "evaluated", "weights": ""},), "finished"),
    ],
)
def test_training_without_a_holder_is_what_its_last_event_says(
    events: Any, expected: str, tmp_path: Path
) -> None:
    assert state_of(training(tmp_path / "one", *events)).condition == expected


def test_training_under_a_lock_is_running_whatever_its_events(tmp_path: Path) -> None:
    folder = training(tmp_path / "one", {"event": "interrupted"})
    with RunLock(folder):
        found = state_of(folder)
    assert found.condition == "running"
    assert found.holder is not None and found.holder.pid == os.getpid()


def test_training_reads_figures_as_they_come(tmp_path: Path) -> None:
    folder = training(tmp_path / "one")
    reader = RunReader(folder)
    assert (reader.read().step, reader.read().steps) == (0, 6)
    row = {"step": 0, "reward/mean": 0.5, "kernel/correct_rate": None}
    append_line(folder / "metrics.jsonl", row)
    assert (reader.read().step, reader.read().figures) == (1, {"reward": 0.5})
    append_line(folder / "metrics.jsonl", {"step": 1, "reward/mean": 0.75})
    append_line(folder / "evaluations.jsonl", {"step": 2, "eval/pass@1": 0.25})
    found = reader.read()
    assert (found.step, found.figures) == (2, {"reward": 0.75, "pass@1": 0.25})
    os.truncate(folder / "metrics.jsonl", 0)  # a resumed run cuts its logs back
    append_line(folder / "metrics.jsonl", {"step": 0, "reward/mean": 0.1})
    assert reader.read().step == 1


def test_lock_left_behind_means_died_here_and_unknown_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    folder = training(tmp_path / "one", {"event": "resumed"})
    left_behind(folder, "here")
    assert state_of(folder).condition == "died"
    left_behind(folder, "there")
    found = state_of(folder)
    assert found.condition == "unknown" and str(found.holder) == "process 77 on there"


def test_eval_is_interrupted_until_every_episode_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    task: dict[str, Any] = {"suite": "Synthetic", "level": 1, "limit": 3}
    evaluate("scripted", out=folder, part="generate", **task)
    found = state_of(folder)
    assert (found.kind, found.condition, found.steps) == ("eval", "interrupted", 3)
    assert found.step < 3
    evaluate("scripted", out=folder, evaluator=ScriptedEvaluator(), **task)
    found = state_of(folder)
    assert (found.condition, found.step, found.figures["judged"]) == ("finished", 3, 3)


def test_search_counts_evaluations_of_all_kernels(tmp_path: Path) -> None:
    folder = search(tmp_path / "out", "a", {"event": "judged", "value": 0.6931471805599453})
    search(folder, "b", {"event": "judged", "value": None}, {"event": "judged", "value": 0.1})
    found = state_of(folder)
    assert (found.kind, found.condition, found.step) == ("search", "died", 3)
    assert found.figures == {"best": pytest.approx(2.0), "kernels": 2}
    with RunLock(folder / "kernels" / "b"):
        assert state_of(folder).condition == "running"


@pytest.mark.parametrize(("reason", "expected"), [("patience", "finished"), ("interrupted",) * 2])
def test_search_that_stopped_says_why(reason: str, expected: str, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"event": "stopped", "reason": reason},
        {"event": "finished", "result": {"speedup": 3.0}},
    ]
    found = state_of(search(tmp_path / "out", "a", *events))
    assert (found.condition, found.note) == (expected, reason)
    assert found.figures["best"] == pytest.approx(3.0)


def test_runs_are_found_below_a_place_and_hidden_folders_left_out(tmp_path: Path) -> None:
    first = training(tmp_path / "a" / "b" / "one")
    training(first / "demo")  # inside of a run
    training(tmp_path / ".cache" / "one")
    second = search(tmp_path / "out", "a")
    (tmp_path / "empty").mkdir()
    assert find_runs(tmp_path) == [first, second]
    assert [state.folder for state in read_states(tmp_path)] == [first, second]
    assert find_runs(first) == [first]


def test_damaged_run_is_listed_with_the_reason(tmp_path: Path) -> None:
    folder = training(tmp_path / "one")
    (folder / "config.yaml").write_text("optimiser: 3\n")
    assert "cannot be read" in state_of(folder).note
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "plan.json").write_text("{")
    assert [state.kind for state in read_states(tmp_path)] == ["training", "eval"]


def test_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run in"):
        RunReader(tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        read_states(tmp_path / "nowhere")
