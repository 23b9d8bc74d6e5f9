"""`--evaluate RUN`: the model or any checkpoint, at its own step, in the run's curves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kernelgym.records.run_lock import RunLock
from kernelgym.testing import ScriptedEvaluator
from kernelgym_train.cli import main
from kernelgym_train.launch import launch
from support import tiny

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of 3 steps with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("runs")
    words = tiny.tokenizer()
    tiny.model(len(words)).save_pretrained(folder / "tiny")
    words.save_pretrained(folder / "tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "run_evaluator", evaluator)
        given = [
            *("env.suite=Synthetic", "env.split=rl", "env.levels=[1]", "env.max_turns=1"),
            *("env.ruleset=kernelbench", "env.examples=zero_shot", "evaluation.split=heldout"),
            *("evaluation.limit=2", "evaluation.samples=1", "evaluation.pass_at=[1]"),
            *("evaluation.every=0", "sampling.problems_per_step=1", "sampling.group_size=2"),
            *("sampling.max_new_tokens=4", "sampling.max_prompt_tokens=4000"),
            *("sampling.refill_rounds=0", "optimiser.steps=3", "optimiser.micro_batch=2"),
            *("model.lora_rank=4", "model.device=cpu", "model.gradient_checkpointing=false"),
            *("run.save_every=1", "run.keep_checkpoints=5", "evaluation.greedy=false"),
            *(f"model.id={folder / 'tiny'}", f"run.folder={folder}", "run.name=one"),
        ]
        assert main(given) == 0
    return folder / "one"


def evaluator(config: Any, **_: Any) -> ScriptedEvaluator:
    return ScriptedEvaluator(tiny.judge, ruleset=config.env.ruleset)


@pytest.fixture
def copied(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the run; a script judges."""
    monkeypatch.setattr(launch, "run_evaluator", evaluator)
    return Path(shutil.copytree(trained, tmp_path / "one"))


def evaluations(run: Path) -> list[dict[str, Any]]:
    path = run / "evaluations.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def forget_the_end(run: Path) -> None:
    """Make a run one that has not ended."""
    shutil.rmtree(run / "model")
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(line for line in lines if '"finished"' not in line))


def curves(run: Path) -> dict[str, list[int]]:
    """Return the steps of each curve that evaluations on request have drawn."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run / "tensorboard" / "evaluate"))
    read.Reload()
    return {name: [each.step for each in read.Scalars(name)] for name in read.Tags()["scalars"]}


def test_checkpoint_is_evaluated_at_its_step_and_in_the_curves(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--evaluate", str(copied), "--step", "2"]) == 0
    assert "evaluated the weights after 2 steps" in capsys.readouterr().err
    (row,) = evaluations(copied)
    assert row["step"] == 2 and row["checkpoint"].endswith("checkpoint-2")
    assert curves(copied)["eval/pass@1"] == [2]
    assert main(["--evaluate", str(copied), "--checkpoint", row["checkpoint"]]) == 0
    again = evaluations(copied)[1]
    assert {**again, "time/eval_s": 0} == {**row, "time/eval_s": 0}


def test_finished_run_is_evaluated_at_the_step_of_its_model(copied: Path) -> None:
    """Not at `optimiser.steps`, which a later command may raise."""
    assert main(["--evaluate", str(copied), "optimiser.steps=6"]) == 0
    (row,) = evaluations(copied)
    assert row["step"] == 3 and row["checkpoint"] == str(copied / "model")


def test_run_that_goes_on_is_evaluated_at_its_newest_checkpoint(copied: Path) -> None:
    forget_the_end(copied)
    with RunLock(copied):
        assert main(["--evaluate", str(copied)]) == 0
    (row,) = evaluations(copied)
    assert row["step"] == 3 and row["checkpoint"].endswith("checkpoint-3")


def test_resumed_run_keeps_evaluations_of_checkpoints_that_stay(copied: Path) -> None:
    forget_the_end(copied)
    for step in ("1", "3"):
        assert main(["--evaluate", str(copied), "--step", step]) == 0
    assert main(["--resume", str(copied), "--from-step", "2"]) == 0
    assert [row["step"] for row in evaluations(copied)] == [1]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("--evaluate", "RUN", "--step", "7"), "has no checkpoint after 7 steps; those it has: 1"),
        (("--evaluate", "RUN", "--checkpoint", "x"), "is not a checkpoint of the run in"),
        (("--evaluate", "RUN", "--checkpoint", "x", "--step", "1"), "both choose a checkpoint"),
        (("--step", "1"), "chooses a checkpoint of a run; name it by --evaluate"),
        (("--evaluate", "untrained", "--step", "1"), "chooses a checkpoint of a run"),
    ],
)
def test_wrong_checkpoint_is_a_usage_error(
    given: tuple[str, ...], error: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(copied) if each == "RUN" else each for each in given]) == 2
    err = capsys.readouterr().err
    assert error in err and err.count("\n") == 1


def test_run_without_a_checkpoint_says_when_it_has_one(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget_the_end(copied)
    (copied / "checkpoints.jsonl").unlink()
    assert main(["--evaluate", str(copied)]) == 2
    assert "has no checkpoint yet" in capsys.readouterr().err
