"""Searches whose starting kernel says what is right: every result says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelgym.indexing.played import played_entries
from kernelgym.records.export import completion_rows, preference_rows, sft_rows
from kernelgym.records.trajectories import read_records
from kernelgym.suites.spec_files import spec_from
from kernelgym.testing import ScriptedEvaluator
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.finishing import sentence
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.task import SearchTask, task_of_spec
from support.searches import judged
from support.specs import PRODUCT, changed

MEANS = "agrees with the starting kernel"


def task(**changes: Any) -> SearchTask:
    shapes = [{"axes": {"n": 48}}]
    given = {"reference": "start", "contract__shapes": shapes, **changes}
    return task_of_spec(spec_from(changed(PRODUCT, **given), Path()))


@pytest.fixture(scope="module")
def outdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, said = tmp_path_factory.mktemp("search"), list[str]()
    config = SearchConfig(budget=Budget(20), algo="best_first", say=said.append)
    search(task(), ScriptedEvaluator(judged), folder, config)
    assert any(f"correct means: {MEANS}" in line for line in said), "the line on the start"
    return folder


@pytest.mark.parametrize("name", ["trace.md", "pull_request.md", "report.html"])
def test_files_of_a_search_by_a_start_say_what_correct_means(name: str, outdir: Path) -> None:
    assert MEANS in (outdir / "kernels" / "product" / name).read_text()


def test_result_and_sentence_by_a_start_say_what_correct_means(outdir: Path) -> None:
    result = json.loads((outdir / "result.json").read_text())
    assert result["correct_means"] == MEANS
    folder = SearchFolder(outdir, "product")
    told = sentence(result, folder)
    assert f"(correct means: {MEANS})" in told and "the starting kernel's speed" in told
    nothing = {**result, "best": {**result["best"], "diff": ""}}
    assert f"(correct means: {MEANS})" in sentence(nothing, folder)


def test_rows_by_a_start_say_what_correct_means(outdir: Path) -> None:
    records = list(read_records(outdir / "kernels" / "product" / "episode.jsonl"))
    rows = [*sft_rows(records), *completion_rows(records), *preference_rows(records)]
    assert rows and {row["correct_means"] for row in rows} == {MEANS}


def test_retrieval_takes_no_episode_by_a_start(outdir: Path) -> None:
    records = list(read_records(outdir / "kernels" / "product" / "episode.jsonl"))
    assert any(turn.verdict.correct for record in records for turn in record.trajectory.turns)
    assert not played_entries(records)


def test_search_by_a_reference_says_so_in_its_result_alone(tmp_path: Path) -> None:
    config = SearchConfig(budget=Budget(3), algo="best_first")
    plain = task(reference=PRODUCT["reference"])
    result = search(plain, ScriptedEvaluator(judged), tmp_path, config)
    assert result["correct_means"] == "agrees with the reference"
    assert "correct means" not in sentence(result, SearchFolder(tmp_path, "product"))


def test_start_makes_a_task_of_its_own() -> None:
    assert task().digest != task(reference=PRODUCT["reference"]).digest
