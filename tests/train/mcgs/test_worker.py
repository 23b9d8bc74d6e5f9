"""``--worker control.json``: one evaluation of a search again."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from kernelgym import LocalEvaluator, UsageError
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym_train.mcgs import command
from kernelgym_train.mcgs.task import task_of_spec
from kernelgym_train.mcgs.worker import read_control, repeat
from support import searches
from support.searches import InTurns, searched, timed


@pytest.fixture
def control(tmp_path: Path) -> Path:
    """Return the best's control.json of a search."""
    judge = InTurns(searches.judged, lambda _, kernel: timed(kernel))
    result = searches.run(tmp_path, judge, 6)
    assert result["speedup"] > 1.0
    return tmp_path / "kernels" / "matmul" / "best" / "control.json"


def test_evaluation_is_repeated_with_its_seed(control: Path) -> None:
    asked = read_control(control)
    judge, said = InTurns(searches.judged, lambda _, kernel: timed(kernel)), list[str]()
    assert repeat(asked, judge, said.append).correct
    assert judge.seeds == [json.loads((control.parent / "result.json").read_text())["seed"]]
    assert judge.rounds == [(searches.TASK.start, asked.kernel)]
    assert asked.task.problem == searches.TASK.problem
    assert asked.before is not None
    told = f"{math.exp(asked.before):.3g}x"
    assert said[-1] == f"{told} over the start in one round; {told} in the search"


def test_wrong_kernel_gives_no_times(control: Path) -> None:
    said: list[str] = []
    judge = ScriptedEvaluator([verdict("wrong", message="values differ")])
    assert not repeat(read_control(control), judge, said.append).correct
    assert said == ["wrong: values differ"]


def test_other_rules_are_refused(control: Path) -> None:
    judge = ScriptedEvaluator([verdict("correct")], ruleset="kernelbench")
    with pytest.raises(UsageError, match="give ruleset="):
        repeat(read_control(control), judge, print)


def test_changed_kernel_is_refused(control: Path) -> None:
    path = control.parent / "kernel_module.py"
    path.write_text(path.read_text() + "\n# changed\n")
    with pytest.raises(UsageError, match="has changed since the search"):
        read_control(control)


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_file_that_is_no_control_is_refused(text: str, control: Path) -> None:
    control.write_text(text)
    with pytest.raises(UsageError, match=r"control\.json"):
        read_control(control)


def test_spec_is_read_from_its_own_file(tmp_path: Path) -> None:
    given = Path("examples/row_softmax.json")
    judge = ScriptedEvaluator(lambda *job: verdict("correct", speedup=searches.speedup(job[1])))
    searched(task_of_spec(given), judge, tmp_path, algo="best_first")
    (variant, *_) = sorted(tmp_path.glob("kernels/*/variants/*/control.json"))
    asked = read_control(variant)
    assert len(asked.task.shapes) == len(task_of_spec(given).shapes)
    run = json.loads((variant.parents[2] / "baseline" / "run.json").read_text())
    assert run["problem"] is None and Path(run["spec"]).name == given.name


def test_command_repeats_an_evaluation(
    control: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def evaluator(*_: object, **__: object) -> ScriptedEvaluator:
        return ScriptedEvaluator(searches.judged)

    monkeypatch.setattr(command, LocalEvaluator.__name__, evaluator)
    assert command.run_search([f"worker={control}"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "correct"
