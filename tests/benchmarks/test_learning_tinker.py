"""The learning benchmark on a Tinker server: what it takes over, what it assembles, its goals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning import tinker
from kernelgym_train.demo.learning import learning_config
from kernelgym_train.demo.plan import TINY_PLAN


def stage(value: float, width: float = 0.02) -> dict[str, Any]:
    rate = {"value": value, "low": value - width, "high": value + width}
    return {"seconds": 10.0, "tables": {tinker.HEADLINE: {"sampled": rate, "greedy": None}}}


def assembled(folder: Path, *seeds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    for number, stages in enumerate(seeds):
        (folder / f"seed{number}").mkdir()
        for name, found in stages.items():
            (folder / f"seed{number}" / f"{name}.json").write_text(json.dumps(found))
    return tinker.assemble(folder, range(len(seeds)))


def prepared(folder: Path, seed: int, plan: str = TINY_PLAN.start_digest) -> Path:
    for name in ("start", "problems"):
        (folder / name).mkdir(parents=True)
    (folder / "start" / "prepared.json").write_text(json.dumps({"seed": seed, "plan": plan}))
    return folder


def test_prepared_folder_is_taken_for_its_seed(tmp_path: Path) -> None:
    given = prepared(tmp_path / "demo", 1)
    assert tinker.take_prepared(given, tmp_path / "seed1", TINY_PLAN, 1)
    assert (tmp_path / "seed1" / "start" / "prepared.json").is_file()
    assert tinker.take_prepared(given, tmp_path / "seed1", TINY_PLAN, 1), "it is there already"


@pytest.mark.parametrize(("seed", "plan"), [(2, TINY_PLAN.start_digest), (1, "another")])
def test_another_prepared_folder_is_left(tmp_path: Path, seed: int, plan: str) -> None:
    given = prepared(tmp_path / "demo", seed, plan)
    assert not tinker.take_prepared(given, tmp_path / "seed1", TINY_PLAN, 1)
    assert not tinker.take_prepared(tmp_path / "nothing", tmp_path / "seed1", TINY_PLAN, 1)
    assert not (tmp_path / "seed1").exists()


@pytest.mark.parametrize(
    ("after", "met"),
    [((0.9, 0.8), True), ((0.9, 0.43), False), ((0.9, None), None), ((0.43, None), False)],
)
def test_rise_of_every_seed_is_asked_for(
    tmp_path: Path, after: tuple[float | None, ...], met: bool | None
) -> None:
    seeds = [
        {"start": stage(0.4), **({} if reached is None else {"main": stage(reached)})}
        for reached in after
    ]
    assert assembled(tmp_path, *seeds)["goals"]["rises_with_intervals_apart"] is met


@pytest.mark.parametrize("arm", tinker.ARMS)
def test_settings_of_an_arm_are_taken(arm: str, tmp_path: Path) -> None:
    settings = tinker.ARMS[arm].settings
    found = learning_config(tmp_path, tmp_path / "run", 0, settings, backend="tinker")
    assert found.tinker.off_policy == (arm == "off_policy")


@pytest.mark.parametrize(("control", "met"), [(0.31, True), (0.49, True), (0.2, False)])
def test_control_stays_near_its_start(tmp_path: Path, control: float, met: bool) -> None:
    found = assembled(tmp_path, {"start": stage(0.4), "shuffled": stage(control)})
    assert found["goals"] == {"rises_with_intervals_apart": None, "control_stays": met}


def test_seconds_of_a_run_are_summed_by_part(tmp_path: Path) -> None:
    run = tmp_path / "seed0" / "main"
    run.mkdir(parents=True)
    row = {"time/model_s": 2.0, "time/judge_s": 1.0, "time/train_s": 0.5, "train/updates": 1.0}
    rows = [row | {"step": 0, "train/gap_max": 2e-6}, row | {"step": 1, "train/updates": 0.0}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    for name in ("start", "main"):
        (tmp_path / "seed0" / f"{name}.json").write_text(json.dumps(stage(0.5)))
    (row,) = tinker.assemble(tmp_path, [0, 1])["seeds"]
    learned = row["stages"]["main"]
    parts = {"model_s": 4.0, "judge_s": 2.0, "optimiser_s": 1.0, "snapshot_s": 0.0}
    assert (learned["parts"], learned["gap_max"], learned["updates"]) == (parts, 2e-6, 1.0)
    assert "parts" not in row["stages"]["start"]


def test_circumstances_are_added_to_a_stage(tmp_path: Path) -> None:
    result = tmp_path / "main.json"
    result.write_text(json.dumps(stage(0.5)))
    tinker.note_circumstances(result)
    found = json.loads(result.read_text())
    assert found["ran"]["padded_to"] == 128 and found["ran"]["date"] > "2026"
    assert {name: found[name] for name in stage(0.5)} == stage(0.5)
