"""A run's folder: what it holds, and where a resumed run goes on."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelgym import UsageError, read_records
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.prompts.observer import Observer, render
from kernelgym.rulesets import ruleset
from kernelgym.types import text_digest
from kernelgym_train.config.config import load_config
from kernelgym_train.launch.manifest import manifest
from kernelgym_train.run.runlog import RunLog, Watcher
from support import played

OBSERVER = Observer("triton", "cpu", max_turns=2, examples="zero_shot")


class Seen(Watcher):
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, Any]] = []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.told.append(("scalars", step, dict(values)))

    def histograms(self, step: int, values: Mapping[str, Sequence[float]]) -> None:
        self.told.append(("histograms", step, dict(values)))

    def close(self) -> None:
        self.told.append(("close", 0, None))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps(log: RunLog, first: int, last: int, *, save: bool = True, **options: Any) -> None:
    """Write steps, and a checkpoint after the last of them."""
    for step in range(first, last):
        log.rollouts([played.rollout([0.1, 0.2], step=step)], OBSERVER, EpisodeConfig())
        log.metrics(step, {"reward/mean": step / 10, "bad": float("nan")})
    if save:
        folder = log.folder / "checkpoints" / f"checkpoint-{last}"
        folder.mkdir()
        log.commit(last, folder, {"at": last}, weights=f"w{last}", **options)


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return RunLog.create(tmp_path / "runs" / "one", {"run": {"seed": 3}}, {"backend": "trl"})


def test_what_a_new_folder_holds(log: RunLog) -> None:
    assert log.config == {"run": {"seed": 3}}
    assert json.loads((log.folder / "manifest.json").read_text())["backend"] == "trl"
    assert rows(log.folder / "events.jsonl")[0]["event"] == "started"
    assert stat.S_IMODE((log.folder / "secret").stat().st_mode) == 0o600
    assert len(log.secret) == 64 and log.start is None


def test_every_run_has_a_secret_of_its_own(log: RunLog, tmp_path: Path) -> None:
    assert RunLog.create(tmp_path / "two", {}, {}).secret != log.secret
    assert RunLog.resume(log.folder).secret == log.secret


def test_a_folder_that_exists_is_refused_with_the_fix(log: RunLog) -> None:
    with pytest.raises(UsageError, match=r"--resume .*one"):
        RunLog.create(log.folder, {}, {})
    with pytest.raises(UsageError, match="no run"):
        RunLog.resume(log.folder / "nowhere")


def test_metrics_go_to_file_and_watchers(log: RunLog) -> None:
    seen = Seen()
    log.watchers.append(seen)
    log.metrics(4, {"b": 2.0, "a": float("nan")})
    log.histograms(4, {"rewards": [1.0]})
    log.close()
    assert rows(log.folder / "metrics.jsonl") == [{"step": 4, "a": None, "b": 2.0}]
    told = [("scalars", 4, {"b": 2.0}), ("histograms", 4, {"rewards": [1.0]}), ("close", 0, None)]
    assert seen.told == told


def test_episodes_are_written_in_kernelgyms_schema_and_tokens_beside_them(log: RunLog) -> None:
    rollout = played.rollout([0.1, 0.2], step=7, group=2, number=1)
    log.rollouts([rollout], OBSERVER, EpisodeConfig(reward="sparse"))
    (record,) = read_records(log.folder / "trajectories.jsonl")
    assert record.trajectory == rollout.trajectory
    assert (record.writer, record.key, record.reward) == ("kernelgym-train", "7/2/1", "sparse")
    turns = rollout.trajectory.turns
    shown = [render(OBSERVER.observe(record.trajectory.problem, turns[:n])) for n in range(2)]
    assert record.observations == tuple(map(text_digest, shown))
    tokens = rows(log.folder / "tokens.jsonl")
    assert [row["key"] for row in tokens] == [[7, 2, 1, 0], [7, 2, 1, 1]]
    assert [tuple(row["ids"]) for row in tokens] == [one.ids for one in rollout.completions]
    text = (log.folder / "trajectories.jsonl").read_text()
    assert "prompt_ids" not in text


def test_what_is_not_kept_is_not_written(log: RunLog) -> None:
    log.keeps_tokens = log.keeps_trajectories = False
    log.rollouts([played.rollout([0.1])], OBSERVER, EpisodeConfig())
    assert not (log.folder / "tokens.jsonl").exists()
    assert not (log.folder / "trajectories.jsonl").exists()


def test_logs_are_cut_back_to_the_last_checkpoint(log: RunLog) -> None:
    steps(log, 0, 2)
    at_checkpoint = {p.name: p.read_bytes() for p in log.folder.glob("*.jsonl")}
    steps(log, 2, 4, save=False)
    with open(log.folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "rew')  # killed in the middle of a line
    (log.folder / "verdicts.jsonl").write_text("{}\n")
    again = RunLog.resume(log.folder)
    assert again.start is not None
    assert (again.start.step, again.start.weights, again.start.state()) == (2, "w2", {"at": 2})
    for name in ("metrics.jsonl", "trajectories.jsonl", "tokens.jsonl"):
        assert (log.folder / name).read_bytes() == at_checkpoint[name]
    assert (log.folder / "verdicts.jsonl").read_text() == "{}\n"
    assert [row["event"] for row in rows(log.folder / "events.jsonl")] == ["started", "resumed"]


def test_a_run_without_a_checkpoint_begins_anew(log: RunLog) -> None:
    steps(log, 0, 2, save=False)
    (log.folder / "checkpoints" / "checkpoint-2").mkdir()
    again = RunLog.resume(log.folder)
    assert again.start is None
    assert (log.folder / "metrics.jsonl").read_bytes() == b""
    assert not list((log.folder / "checkpoints").iterdir())


@pytest.mark.parametrize("half", ["folder", "state", "row"])
def test_a_half_written_checkpoint_does_not_count(log: RunLog, half: str) -> None:
    steps(log, 0, 2)
    steps(log, 2, 4, save=False)
    folder = log.folder / "checkpoints" / "checkpoint-4"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"half")
    if half != "folder":
        (folder / "state.json").write_text("{}")
    if half == "row":
        with open(log.folder / "checkpoints.jsonl", "a") as file:
            file.write('{"step": 4, "path": "checkpoints/check')
    again = RunLog.resume(log.folder)
    assert again.start is not None and again.start.step == 2
    assert not folder.exists()
    steps(again, 2, 4)
    assert [row["step"] for row in rows(log.folder / "checkpoints.jsonl")] == [2, 4]


def test_run_without_a_step_is_discarded(log: RunLog) -> None:
    recovered = RunLog.resume(log.folder)  # as after a learner was lost
    assert recovered.discard_if_unstarted() and not log.folder.exists()


@pytest.mark.parametrize("others", [False, True])
def test_discarded_run_leaves_no_new_parents(others: bool, tmp_path: Path) -> None:
    log = RunLog.create(tmp_path / "runs" / "today" / "one", {}, {})
    if others:
        RunLog.create(tmp_path / "runs" / "other", {}, {})
    assert log.discard_if_unstarted()
    left = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.glob("*/*"))]
    assert left == (["runs/other"] if others else [])
    assert (tmp_path / "runs").exists() is others


@pytest.mark.parametrize("recovered", [False, True])
def test_run_with_a_step_is_not_discarded(recovered: bool, log: RunLog) -> None:
    steps(log, 0, 1, save=recovered)
    found = RunLog.resume(log.folder) if recovered else log
    assert not found.discard_if_unstarted() and log.folder.exists()


def test_resuming_twice_is_resuming_once(log: RunLog) -> None:
    steps(log, 0, 2)
    steps(log, 2, 3, save=False)
    RunLog.resume(log.folder)
    kept = {p.name: p.read_bytes() for p in log.folder.glob("*.jsonl") if p.name != "events.jsonl"}
    RunLog.resume(log.folder)
    for name, content in kept.items():
        assert (log.folder / name).read_bytes() == content


def test_going_back_takes_the_last_good_checkpoint(log: RunLog) -> None:
    steps(log, 0, 1)
    steps(log, 1, 2, good=False)
    assert (again := RunLog.resume(log.folder)).start and again.start.step == 2
    back = RunLog.resume(log.folder, good=True)
    assert back.start is not None and back.start.step == 1
    assert [row["step"] for row in rows(log.folder / "metrics.jsonl")] == [0]
    assert not (log.folder / "checkpoints" / "checkpoint-2").exists()


def test_going_on_from_a_step_drops_what_is_later(log: RunLog) -> None:
    steps(log, 0, 2)
    at_checkpoint = {p.name: p.read_bytes() for p in log.folder.glob("*.jsonl")}
    steps(log, 2, 4)
    steps(log, 4, 6)
    again = RunLog.resume(log.folder, from_step=2)
    assert again.start is not None and again.start.step == 2
    for name in ("metrics.jsonl", "trajectories.jsonl", "tokens.jsonl", "checkpoints.jsonl"):
        assert (log.folder / name).read_bytes() == at_checkpoint[name]
    assert [path.name for path in (log.folder / "checkpoints").iterdir()] == ["checkpoint-2"]
    went, resumed = rows(log.folder / "events.jsonl")[-2:]
    assert (went["event"], went["step"], resumed["step"]) == ("went_back", 2, 2)
    assert [row["step"] for row in went["dropped"]] == [4, 6]
    steps(again, 2, 3)
    assert [row["step"] for row in rows(log.folder / "checkpoints.jsonl")] == [2, 3]


def test_going_on_from_an_unknown_step_changes_nothing(log: RunLog) -> None:
    with pytest.raises(UsageError, match="no checkpoint after 0 steps; it has none"):
        RunLog.resume(log.folder, from_step=0)
    for step in range(3):
        steps(log, step, step + 1)
    shutil.rmtree(log.folder / "checkpoints" / "checkpoint-2")
    steps(log, 3, 4, save=False)
    before = {p: p.read_bytes() for p in log.folder.rglob("*") if p.is_file()}
    for step in (2, 4):
        with pytest.raises(UsageError, match=f"after {step} steps; those it has: 1, 3"):
            RunLog.resume(log.folder, from_step=step)
    assert {p: p.read_bytes() for p in log.folder.rglob("*") if p.is_file()} == before


def test_pruning_keeps_the_last_the_first_and_the_best(log: RunLog) -> None:
    for step, score in enumerate([0.1, 0.9, 0.2, None, 0.3, 0.4]):
        steps(log, step, step + 1, score=score)
    assert [each.step for each in log.prune(2)] == [3, 4] and log.prune(2) == ()
    left = {path.name for path in (log.folder / "checkpoints").iterdir()}
    assert left == {f"checkpoint-{n}" for n in (1, 2, 5, 6)}
    assert (again := RunLog.resume(log.folder)).start and again.start.step == 6
    shutil.rmtree(log.folder / "checkpoints" / "checkpoint-6")
    assert (again := RunLog.resume(log.folder)).start and again.start.step == 5


def test_a_follower_writes_nothing(log: RunLog) -> None:
    steps(log, 0, 2)
    before = {p: p.read_bytes() for p in log.folder.rglob("*") if p.is_file()}
    other = RunLog.follow(log.folder)
    assert other.start is not None and other.start.step == 2
    other.metrics(3, {"a": 1.0})
    other.rollouts([played.rollout([0.1])], OBSERVER, EpisodeConfig())
    other.event("x")
    other.evaluation(3, {"a": 1.0})
    other.commit(3, log.folder / "checkpoints" / "checkpoint-2", {})
    other.prune(1)
    assert {p: p.read_bytes() for p in log.folder.rglob("*") if p.is_file()} == before


def test_checkpoint_row_carries_a_backends_facts(log: RunLog) -> None:
    folder = log.folder / "checkpoints" / "one"
    folder.mkdir()
    log.commit(2, folder, {}, facts={"state_path": "tinker://a", "step": "not ours to change"})
    (row,) = rows(log.folder / "checkpoints.jsonl")
    assert row["step"] == 2 and row["state_path"] == "tinker://a"
    start = RunLog.resume(log.folder).start
    assert start is not None and start.facts == {"state_path": "tinker://a"}


def test_the_manifest_names_versions_machine_rules_and_seed() -> None:
    config = load_config(None, ["judge.memory_bytes=1073741824", "run.seed=5"])
    found = manifest(config, ruleset("strict"))
    assert found["memory_bytes"] == 1 << 30
    assert (found["seed"], found["ruleset"]) == (5, ruleset("strict").label)
    assert {"kernelgym", "torch", "trl"} <= set(found["versions"])
    assert found["machine"]["cores"] >= 1
    json.dumps(found)
