"""`grade`: the reward of a task's kernel, and when there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelgym import UsageError
from kernelgym.rulesets import ruleset
from kernelgym.suites import get_problem
from kernelgym.testing import ScriptedEvaluator
from kernelgym.workspace import grading
from kernelgym.workspace.harbor_tasks import TaskSettings, write_task
from support.serve_process import serving
from support.workspaces import marked, recorded

PROBLEM = get_problem("Synthetic/L1/2")


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    settings = TaskSettings("cpp", "cpu", ruleset("strict"), "kernelgym")
    return write_task(tmp_path, PROBLEM, settings) / "tests"


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted judge in the place of a real one."""
    monkeypatch.setattr(grading, "_evaluator", lambda *_: ScriptedEvaluator())


def kernel(folder: Path, source: str) -> Path:
    path = folder / "kernel.py"
    path.write_text(source)
    return path


def test_reward_is_the_score_of_the_submission(tests, judged, tmp_path) -> None:
    out = tmp_path / "logs"
    found = grading.grade(tests, kernel(tmp_path, marked("correct", 3.0)), out)
    assert json.loads((out / "reward.json").read_text()) == found
    assert (found["correct"], found["speedup"]) == (1.0, 3.0) and 0.65 < found["reward"] <= 1.0
    (turn,) = recorded(out / "trajectory.jsonl").trajectory.turns
    assert turn.score.total == found["reward"]
    slower = grading.grade(tests, kernel(tmp_path, marked("correct", 2.0)), tmp_path / "2")
    wrong = grading.grade(tests, kernel(tmp_path, marked("wrong")), tmp_path / "3")
    assert found["reward"] > slower["reward"] > wrong["reward"] > 0.0 == wrong["correct"]
    assert "wrong" in (tmp_path / "3" / "feedback.txt").read_text().lower()


def test_kernel_that_is_missing_or_too_long_scores_0(tests, judged, tmp_path) -> None:
    missing = grading.grade(tests, tmp_path / "no.py", tmp_path / "a")
    long = grading.grade(tests, kernel(tmp_path, "#" * 1_000_001), tmp_path / "b")
    assert set(missing.values()) == set(long.values()) == {0.0}
    assert "cannot be read" in (tmp_path / "a" / "feedback.txt").read_text()


def test_kernel_that_is_no_utf8_is_judged(tests, judged, tmp_path) -> None:
    (tmp_path / "kernel.py").write_bytes(b"# caf\xe9\nclass ModelNew: ...\n")
    assert grading.grade(tests, tmp_path / "kernel.py", tmp_path / "a")["correct"] == 0.0


def test_judge_that_fails_leaves_no_reward(tests, judged, tmp_path, capsys) -> None:
    out = tmp_path / "logs"
    path = kernel(tmp_path, marked("unavailable"))
    assert grading.main([str(tests), str(path), str(out)]) == 1
    assert "no reward" in capsys.readouterr().err and not (out / "reward.json").exists()


def test_service_of_the_environment_judges_or_leaves_no_reward(
    tests, tmp_path, monkeypatch, capsys
) -> None:
    path = kernel(tmp_path, marked("correct", 2.0))
    with serving(tmp_path / "state") as (_, url):
        monkeypatch.setenv(grading.EVALUATOR_VARIABLE, url)
        assert grading.grade(tests, path, tmp_path / "a")["speedup"] == 2.0
    monkeypatch.setenv(grading.EVALUATOR_VARIABLE, "judge:8765")
    assert grading.main([str(tests), str(path), str(tmp_path / "b")]) == 1
    assert "judge:8765" in capsys.readouterr().err and not (tmp_path / "b/reward.json").exists()


def test_task_whose_problem_was_changed_is_refused(tests, tmp_path) -> None:
    (tests / "problem.py").write_text("class Model: ...")
    with pytest.raises(UsageError, match="export the task again"):
        grading.grade(tests, tmp_path / "kernel.py", tmp_path / "logs")


def test_task_of_another_ruleset_is_refused(tests, tmp_path, capsys) -> None:
    about = json.loads((tests / "task.json").read_text()) | {"ruleset": "strict@00000000"}
    (tests / "task.json").write_text(json.dumps(about))
    assert grading.main([str(tests), "kernel.py", str(tmp_path / "logs")]) == 1
    assert "strict@00000000" in capsys.readouterr().err
    assert grading.main([]) == 2
