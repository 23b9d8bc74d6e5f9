"""Searches over a folder: one budget, and a kernel that fails ends no other."""

from __future__ import annotations

import dataclasses
import itertools
import json
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kernelgym import Kernel, Problem, UsageError, Verdict
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.command import run_search
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.folders import read_tasks, search_folder, whole_sentence
from kernelgym_train.mcgs.tactics import tactics_path
from kernelgym_train.mcgs.task import SearchTask
from support import searches
from support.specs import PRODUCT, SPEC, TRITON_SPEC, changed, written


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A folder with two specs and a pair."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    written(folder, PRODUCT, "product.json")
    written(folder, changed(SPEC, weight=3.0), "scaled.json")
    problem, kernel = EXAMPLES["softmax"]
    (folder / "softmax.problem.py").write_text(problem.source)
    (folder / "softmax.kernel.py").write_text(kernel.source)
    (folder / "_notes.json").write_text("no spec")
    return folder


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    return verdict("correct", speedup=searches.speedup(kernel))


def run(kernels: Path, outdir: Path, judge: ScriptedEvaluator, **given: Any) -> dict[str, Any]:
    tasks, resume = read_tasks(kernels, "cpp"), given.pop("resume", False)
    config = SearchConfig(**({"budget": Budget(18)} | given))
    return search_folder(tasks, lambda task: judge, outdir, config, resume=resume)


def test_each_kernel_is_searched_and_written(kernels: Path, tmp_path: Path) -> None:
    result = run(kernels, tmp_path / "out", ScriptedEvaluator(judged))
    assert list(result["kernels"]) == ["product", "scaled", "softmax"] and not result["failed"]
    assert (
        result["evaluations"]
        == 18
        == sum(each["evaluations"] for each in result["kernels"].values())
    )
    assert result == json.loads((tmp_path / "out" / "result.json").read_text())
    for name, each in result["kernels"].items():
        folder = tmp_path / "out" / "kernels" / name
        assert each == json.loads((folder / "result.json").read_text())
        assert each["speedup"] > 1.0 and (folder / "report.html").is_file()
        assert each["evaluations"] >= 2
    assert whole_sentence(result, tmp_path).startswith("3 of 3 kernels are faster: ")


def test_a_kernel_that_fails_ends_no_other(kernels: Path, tmp_path: Path) -> None:
    def breaks(problem: Problem, kernel: Kernel) -> Verdict:
        if "scaled" in problem.id:
            return verdict("wrong", message="differs")
        if "softmax" in problem.name and "omp" in kernel.source:
            raise RuntimeError("the judge broke")
        return judged(problem, kernel)

    result = run(kernels, tmp_path / "out", ScriptedEvaluator(breaks))
    assert list(result["kernels"]) == ["product"]
    assert "the start kernel is wrong" in result["failed"]["scaled"]
    assert result["failed"]["softmax"] == "the judge broke"
    assert result["kernels"]["product"]["evaluations"] > 6
    told = whole_sentence(result, tmp_path)
    assert "1 of 3 kernels are faster, 2 failed (scaled, softmax)" in told


def shares(result: Mapping[str, Any]) -> dict[str, int]:
    return {name: each["evaluations"] for name, each in result["kernels"].items()}


@pytest.mark.slow
def test_what_gains_gets_more_of_the_budget(kernels: Path, tmp_path: Path) -> None:
    def only_product(problem: Problem, kernel: Kernel) -> Verdict:
        gains = "product" in problem.id
        return verdict("correct", speedup=searches.speedup(kernel) if gains else 0.5)

    found = shares(run(kernels, tmp_path / "a", ScriptedEvaluator(only_product)))
    alike = shares(run(kernels, tmp_path / "b", ScriptedEvaluator(judged)))
    assert found["product"] > alike["product"]


def test_a_folder_goes_on_with_a_larger_budget(kernels: Path, tmp_path: Path) -> None:
    judge = ScriptedEvaluator(judged)
    first = run(kernels, tmp_path / "out", judge, budget=Budget(12))
    with pytest.raises(UsageError, match="resume=true"):
        run(kernels, tmp_path / "out", judge)
    before = len(judge.judged)
    again = run(kernels, tmp_path / "out", judge, budget=Budget(12), resume=True)
    assert again["kernels"] == first["kernels"] and len(judge.judged) == before
    more = run(kernels, tmp_path / "out", judge, budget=Budget(20), resume=True)
    assert more["evaluations"] == 20
    assert all(shares(more)[name] >= count for name, count in shares(first).items())


def test_ctrl_c_ends_all_searches_of_a_round(kernels: Path, tmp_path: Path) -> None:
    """Ctrl-C in the second round: the last kernel was judged, and the first is again."""
    seen: list[str] = []
    once = threading.Lock()  # two workers judge at a time, and a second Ctrl-C ends it at once

    def interrupts(problem: Problem, kernel: Kernel) -> Verdict:
        second_round = seen and "product" in problem.id and "softmax" in seen[-1]
        if second_round and once.acquire(blocking=False):
            signal.raise_signal(signal.SIGINT)
        seen.append(problem.id)
        return judged(problem, kernel)

    result = run(kernels, tmp_path / "out", ScriptedEvaluator(interrupts), budget=Budget(60))
    assert list(result["kernels"]) == ["product", "scaled", "softmax"] and not result["failed"]
    assert 30 <= result["evaluations"] < 40 and "interrupted" in result["stopped"]


def test_ctrl_c_ends_a_search_that_is_being_opened(kernels: Path, tmp_path: Path) -> None:
    judge = ScriptedEvaluator(judged)

    def evaluator_for(task: SearchTask) -> ScriptedEvaluator:
        signal.raise_signal(signal.SIGINT)
        return judge

    tasks, config = read_tasks(kernels, "cpp")[:1], SearchConfig(budget=Budget(18))
    result = search_folder(tasks, evaluator_for, tmp_path / "out", config)
    assert (result["evaluations"], result["stopped"]) == (0, "interrupted")


def test_time_is_shared_by_weight(kernels: Path, tmp_path: Path) -> None:
    judge = ScriptedEvaluator(lambda *job: dataclasses.replace(judged(*job), wall_s=2.0))
    result = run(
        kernels,
        tmp_path / "out",
        judge,
        budget=Budget(900, seconds=600),
        clock=lambda: 2.0 * len(judge.judged),  # a verdict takes two seconds
    )
    took = {name: each["seconds"] for name, each in result["kernels"].items()}
    assert list(took) == ["product", "scaled", "softmax"] and not result["failed"]
    # Of 600 s a fifth is the first one's: its weight is 1 of 5.
    assert result["kernels"]["product"]["stopped"] == "seconds" and took["product"] <= 130
    assert sum(took.values()) <= 600


def test_a_resumed_folder_keeps_what_time_ended(kernels: Path, tmp_path: Path) -> None:
    judge = ScriptedEvaluator(lambda *job: dataclasses.replace(judged(*job), wall_s=2.0))
    ticks = itertools.count()
    given: dict[str, Any] = {"budget": Budget(900, seconds=600)}
    # Opening a search takes time.
    given["clock"] = lambda: 2.0 * len(judge.judged) + 1e-3 * next(ticks)
    first = run(kernels, tmp_path / "out", judge, **given)
    stopped = {each["stopped"] for each in first["kernels"].values()}
    assert "seconds" in stopped and not first["failed"]
    before = len(judge.judged)
    again = run(kernels, tmp_path / "out", judge, resume=True, **given)
    assert again["kernels"] == first["kernels"] and len(judge.judged) == before
    given["budget"] = Budget(900, seconds=1200)
    more = run(kernels, tmp_path / "out", judge, resume=True, **given)
    assert more["evaluations"] > first["evaluations"]


class Killed(BaseException):
    """What ends a process."""


def test_time_before_a_kill_counts(kernels: Path, tmp_path: Path) -> None:
    judge = ScriptedEvaluator(lambda *job: dataclasses.replace(judged(*job), wall_s=2.0))

    def clock() -> float:
        if len(judge.judged) >= killed_at:
            raise Killed
        return 2.0 * len(judge.judged)

    killed_at, given = 100, {"budget": Budget(900, seconds=600), "clock": clock}
    with pytest.raises(Killed):
        run(kernels, tmp_path / "out", judge, **given)
    killed_at = 1000
    result = run(kernels, tmp_path / "out", judge, resume=True, **given)
    took = {name: each["seconds"] for name, each in result["kernels"].items()}
    assert not result["failed"] and len(took) == 3
    assert took["product"] <= 130 and 300 <= sum(took.values()) <= 600
    assert result["seconds"] == pytest.approx(sum(took.values()), abs=5)


def test_damaged_tactics_are_refused_at_once(kernels: Path, tmp_path: Path) -> None:
    judge = ScriptedEvaluator(judged)
    tactics_path(tmp_path).write_text('{"version": 9, "entries": 3}')
    with pytest.raises(UsageError, match="is of version 9"):
        run(kernels, tmp_path, judge)
    assert not judge.judged


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "holds no kernel"),
        ({"a.json": "{}"}, r"a\.json: name is missing"),
        ({"a.problem.py": "x"}, r"add a\.kernel\.py"),
        ({"a.json": json.dumps(SPEC), "b.json": json.dumps(SPEC)}, "named 'scaled'"),
        ({"a.json": json.dumps(TRITON_SPEC)}, "no CUDA device can be used here"),
    ],
)
def test_a_bad_folder_is_refused_at_once(files: dict[str, str], why: str, tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(UsageError, match=why):
        run_search([f"input={folder}", f"outdir={tmp_path / 'out'}"])
    assert not (tmp_path / "out").exists()


def test_a_budget_below_two_each_is_refused(kernels: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="for 3 kernels; give at least 6"):
        run(kernels, tmp_path / "out", ScriptedEvaluator(judged), budget=Budget(5))


def test_a_plan_of_a_folder_lists_kernels(
    kernels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_search([f"input={kernels}"], dry_run=True) == 0
    out = capsys.readouterr().out
    assert "kernel scaled: at least 16 evaluations" in out and "shape n=48: tune" in out


def test_tasks_without_a_spec_weigh_one(kernels: Path) -> None:
    weights = {task.name: task.weight for task in read_tasks(kernels, "cpp")}
    assert weights == {"product": 1.0, "scaled": 3.0, "softmax": 1.0}
    assert isinstance(read_tasks(kernels, "cpp")[0], SearchTask)
