"""The way to a search's best, as an episode to train on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernelgym.cli import main
from kernelgym.records.export import ExportRules, preference_rows, sft_rows
from kernelgym.records.trajectories import EpisodeRecord, read_records
from kernelgym.suites.spec_files import spec_from
from kernelgym.testing import verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.task import SearchTask, task_of_spec
from support import searches
from support.searches import searched
from support.specs import PRODUCT, changed


def episode(folder: Path, name: str = "matmul") -> EpisodeRecord:
    (record,) = read_records(folder / "kernels" / name / "episode.jsonl")
    return record


def test_way_leads_from_the_start_to_the_best(tmp_path: Path) -> None:
    result = searches.run(tmp_path, searches.evaluator(), 30)
    record = episode(tmp_path)
    assert (record.writer, record.key, record.reward) == ("mcgs", "matmul", "kevin")
    assert record.start == searches.TASK.start.source
    turns = record.trajectory.turns
    assert len(turns) > 1 and len(turns) == record.trajectory.horizon
    kernels = [turn.reply.kernel for turn in turns]
    assert all(not turn.reply.defects for turn in turns) and None not in kernels
    best = (tmp_path / result["best"]["path"]).read_text()
    assert kernels[-1] is not None and kernels[-1].source.rstrip() == best.rstrip()
    assert all(turn.verdict.correct and turn.score.valid for turn in turns)
    first, *_ = turns[-1].action.split("\n\n<KERNEL>")
    assert all(step[0] in " ".join(t.action for t in turns) for step in result["best"]["moves"])
    assert first.count(".") >= 1, "it says what was changed"


def test_rows_are_made_of_a_search(tmp_path: Path) -> None:
    searches.run(tmp_path, searches.evaluator(), 30)
    record = episode(tmp_path)
    rows = list(sft_rows([record]))
    assert [row["turn"] for row in rows] == list(range(len(record.trajectory.turns)))
    asked, *_ = rows[0]["messages"][-2:]
    assert searches.TASK.start.source.strip()[:200] in asked["content"]
    assert rows[-1]["messages"][-1]["content"] == record.trajectory.turns[-1].action
    pairs = list(preference_rows([record], ExportRules(pairs="problem")))
    assert pairs and all(pair["value_chosen"] > pair["value_rejected"] for pair in pairs)


def test_command_exports_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    searches.run(tmp_path, searches.evaluator(), 12)
    out = tmp_path / "rows.jsonl"
    path = tmp_path / "kernels" / "matmul" / "episode.jsonl"
    assert main(["export", str(path), "--format", "sft", "--out", str(out)]) == 0, capsys
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == len(episode(tmp_path).trajectory.turns)


def test_nothing_faster_is_no_episode(tmp_path: Path) -> None:
    judge = searches.evaluator(lambda problem, kernel: verdict("correct", speedup=1.0))
    path = tmp_path / "kernels" / "matmul" / "episode.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("of a search before")
    assert searches.run(tmp_path, judge, 6)["speedup"] == 1.0
    assert not path.exists()


def test_states_whose_verdict_is_gone_are_left_out(tmp_path: Path) -> None:
    result = searches.run(tmp_path, searches.evaluator(), 30)
    turns = episode(tmp_path).trajectory.turns
    state = result["best"]["state"]
    for folder in (tmp_path / "kernels" / "matmul" / "variants").iterdir():
        if folder.name != state:
            shutil.rmtree(folder)
    assert searches.run(tmp_path, searches.evaluator(), 30, resume=True) == result
    (last,) = episode(tmp_path).trajectory.turns
    assert last.reply == turns[-1].reply


def test_hidden_shapes_are_not_in_it(tmp_path: Path) -> None:
    task: SearchTask = task_of_spec(spec_from(changed(PRODUCT), Path()))
    judge = searches.evaluator(
        lambda problem, kernel: verdict("correct", speedup=searches.speedup(kernel))
    )
    searched(task, judge, tmp_path, budget=Budget(8), workers=1)
    path = tmp_path / "kernels" / task.name / "episode.jsonl"
    hidden = [shape.name for shape in task.shapes if shape.role == "hidden"]
    assert hidden and not any(name.partition("=")[2] in path.read_text() for name in hidden)
