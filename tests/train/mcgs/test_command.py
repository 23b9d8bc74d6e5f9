"""``kernelgym-train --backend mcgs``: what it says, and bad input in one line."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from kernelgym.languages import LANGUAGES
from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Kernel, Problem, Verdict
from kernelgym_train.cli import main
from kernelgym_train.mcgs import Budget, command
from kernelgym_train.mcgs.command import estimate
from support import searches
from support.triton_kernels import TRITON_KERNELS

MATMUL = ("--backend", "mcgs", "input=example:matmul")


@pytest.fixture
def table(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> list[ScriptedEvaluator]:
    """Have a table judge in place of this machine; returns the evaluators that were made."""
    made: list[ScriptedEvaluator] = []
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path_factory.mktemp("cache")))

    def evaluator(**_: Any) -> ScriptedEvaluator:
        made.append(searches.evaluator())
        return made[-1]

    monkeypatch.setattr(command, "LocalEvaluator", evaluator)
    return made


def test_command_ends_with_one_sentence(
    table: list[ScriptedEvaluator], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*MATMUL, "algo=best_first", "budget_builds=8", f"outdir={tmp_path}"]) == 0
    said = capsys.readouterr()
    (line,) = said.out.splitlines()
    assert line.startswith("matmul: 26.8x over the start (26.8 to 26.8), 0.268 (from 0.254) of ")
    assert line.endswith(str(tmp_path / "kernels" / "matmul" / "best" / "kernel_module.py"))
    assert Path(line.rpartition(": ")[2]).is_file()
    assert said.err.startswith("start: 0.01 of the reference's speed, noise 0.0%")
    assert "register_block (4 x 2 x 8)" in said.err
    assert all(evaluator.closed for evaluator in table)


def test_command_resumed_when_finished_says_the_same(
    table: list[ScriptedEvaluator], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*MATMUL, "budget_builds=3", f"outdir={tmp_path}"]
    assert main(given) == 0
    first = capsys.readouterr().out
    assert main([*given, "resume=true"]) == 0
    assert capsys.readouterr().out == first
    assert not table[-1].judged


def test_command_judges_by_a_service_where_one_is_named(
    table: list[ScriptedEvaluator],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []
    there = searches.evaluator()

    def service(address: str, **_: Any) -> ScriptedEvaluator:
        asked.append(address)
        return there

    monkeypatch.setattr(command, "RemoteEvaluator", service)
    given = ["budget_builds=2", f"outdir={tmp_path}", "evaluator=http://judge:8765"]
    assert main([*MATMUL, *given]) == 0
    assert asked == ["http://judge:8765"] and there.closed and not table
    capsys.readouterr()
    assert main([*MATMUL, *given, "device=cuda:0"]) == 2
    assert "judges on cpu, and the kernel is for cuda:0" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_interrupted_checks_the_best_and_goes_on(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[ScriptedEvaluator] = []
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path / "cache"))

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        if len(made) == 1 and len(made[0].judged) == 6:
            os.kill(os.getpid(), number)
        return searches.judged(problem, kernel)

    def evaluator(**_: Any) -> ScriptedEvaluator:
        made.append(searches.evaluator(judged))
        return made[-1]

    monkeypatch.setattr(command, "LocalEvaluator", evaluator)
    given = [*MATMUL, "budget_builds=12", f"outdir={tmp_path}"]
    assert main(given) == 128 + number
    said = capsys.readouterr()
    assert said.out.startswith("matmul: ") and "with resume=true continues" in said.err
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["stopped"] == "interrupted" and result["evaluations"] < 12
    assert main([*given, "resume=true"]) == 0
    assert json.loads((tmp_path / "result.json").read_text())["evaluations"] == 12


def test_command_own_problem_and_kernel(
    table: list[ScriptedEvaluator], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("p.py", searches.TASK.problem), ("mine.py", searches.TASK.start)):
        (tmp_path / name).write_text(text.source)
    given = [f"problem={tmp_path / 'p.py'}", f"kernel={tmp_path / 'mine.py'}"]
    out = tmp_path / "out"
    assert main(["--backend", "mcgs", *given, "budget_builds=2", f"outdir={out}"]) == 0
    assert (out / "kernels" / "mine" / "best").is_symlink()


def test_command_dry_run_judges_nothing(
    table: list[ScriptedEvaluator], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*MATMUL, f"outdir={tmp_path / 'x'}", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "register_block: 7 proposals from the start" in said and "effort: standard" in said
    assert "at most 60 evaluations, sooner after 30 without a gain" in said
    assert not table and not (tmp_path / "x").exists()


def test_command_dry_run_reads_the_tactics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tactics.json").write_text("[")
    assert main([*MATMUL, f"tactics={tmp_path / 'tactics.json'}", "--dry-run"]) == 2
    assert "cannot read the tactics in" in capsys.readouterr().err


def test_command_help_lists_its_own_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--backend", "mcgs", "--help-settings"]) == 0
    said = capsys.readouterr().out
    assert "budget_builds = None" in said and "optimiser" not in said


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            ["problem=Synthetic/L1/2", "kernel=TRITON", "language=hip"],
            "language=hip has no moves by rules, so that only a model can change its kernels",
        ),
        (["problem=Synthetic/L1/2", "kernel=GLUON"], "language=gluon has no moves by rules"),
        (["input=example:matmul", "outdir=TRITON/out"], "is not a folder; name another folder"),
        ([], "input= is missing; give input=example:{matmul,softmax,layernorm}, input=SPEC"),
        (["input=example:matmul", "problem=p.py"], "not both"),
        (["input=example:matmull"], "did you mean matmul?"),
        (["input=kernels/"], "input=kernels/ is not an input"),
        (["problem=Synthetic/L1/2"], "kernel=FILE is missing"),
        (["kernel=k.py"], "problem=ID_or_FILE is missing"),
        (["problem=Synthetic/L1/2", "kernel=no/such.py"], "cannot read the kernel no/such.py"),
        (["problem=Synthetic/L1/2", f"kernel={__file__}"], "calls load_inline once"),
        (
            ["problem=Synthetic/L1/2", f"kernel={__file__}", "language=triton"],
            "launches no function that is decorated with triton.jit",
        ),
        (["input=example:matmul", "algo=mcts"], "unknown algorithm 'mcts'; did you mean mcgs?"),
        (["input=example:matmul", "budget_builds=0"], "a search needs at least 1"),
        (["input=example:matmul", "seconds=-1"], "give a time, or 0 for no limit"),
        (["input=example:matmul", "workers=0"], "workers must be above 0"),
        (["input=example:matmul", "budget=3"], "unknown setting 'budget'"),
        (["input=example:matmul", "ruleset=lax"], "unknown ruleset 'lax'"),
        (["input=example:matmul", "--config", "x.yaml"], "--config is for training"),
        (["input=example:matmul", "--resume", "runs/x"], "got 'runs/x'"),
        (["input=example:matmul", "--resume"], "there is no search in"),
        (["input=example:matmul", "--budget-builds", "--no-llm"], "--budget-builds needs a value"),
        (["input=example:matmul", "--budget-builds=x"], "budget_builds"),
        (["input=example:matmul", "moves=hoists"], "unknown move 'hoists'; did you mean hoist?"),
        (["input=example:matmul", "--max-usd", "1"], "max_usd=1.0 is for a model, and none is"),
        (["problem=Synthetic/L1/2", "kernel=TRITON"], "no CUDA device can be used here"),
        (
            ["problem=Synthetic/L1/2", "kernel=TRITON", "device=cpu"],
            "not timed on the cpu; give gpus",
        ),
        (["input=example:matmul", "--gpus", "0,x"], "gpus=0,x is not a list of GPUs; give numbers"),
        (["input=example:matmul", "gpus=0", "device=cpu"], "give gpus= or device=, not both"),
        (
            ["input=example:matmul", "evaluator=http://127.0.0.1:9", "gpus=0"],
            "evaluator=http://127.0.0.1:9 judges elsewhere; leave out gpus=",
        ),
        (["input=example:matmul", "evaluator=nowhere"], "nowhere"),
        (["input=example:matmul", "device=tpu"], "device 'tpu' cannot be judged on"),
        (["input=example:matmul", "ncu_every=5"], "ncu_every=5: only a GPU is profiled; give 0"),
        (["input=example:matmul", "patience=-1"], "patience=-1"),
        (["input=example:matmul", "effort=huge"], "effort"),
        (["input=example:matmul", "min_pred_gain=-1"], "min_pred_gain=-1: give a share"),
        (["input=example:matmul", "floor_share=0"], "floor_share=0: give a share"),
        (["input=example:matmul", "--from-step", "4"], "--from-step is for training"),
    ],
)
def test_command_bad_input_is_one_line(
    given: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = tmp_path / "k.py"
    kernel.write_text(TRITON_KERNELS["softmax"][1].source)
    other = tmp_path / "g.py"
    other.write_text(LANGUAGES["gluon"].sample)
    given = [each.replace("TRITON", str(kernel)) for each in given]
    given = [each.replace("GLUON", str(other)) for each in given]
    assert main(["--backend", "mcgs", f"outdir={tmp_path / 'x'}", *given]) == 2
    said = capsys.readouterr()
    assert complaint in said.err and said.err.count("\n") == 1 and not said.out
    assert not (tmp_path / "x").exists()


def test_command_takes_options_as_well(
    table: list[ScriptedEvaluator], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--input", "example:matmul", "--no-llm", "--outdir", str(tmp_path)]
    assert main(["--backend", "mcgs", *options, "--budget-builds", "3"]) == 0
    first = capsys.readouterr().out
    assert "after 3 evaluations" in first
    assert main(["--backend=mcgs", *options, "--budget-builds=5", "--resume"]) == 0
    assert "after 5 evaluations" in capsys.readouterr().out


def test_estimate_knows_the_limit_of_time() -> None:
    assert ": 2 to 16 minutes where" in estimate(Budget(60), 2, 2)
    assert ": 3 to 16 minutes where" in estimate(Budget(60), 1, 8)
    assert ": 1 to 1 minutes where" in estimate(Budget(60, seconds=60), 2, 2)
    told = estimate(Budget(60), 4, 16, on_gpu=True, by_nvcc=True)
    assert ": 2 to 12 minutes where a build takes 8 to 35 s" in told


def test_search_is_not_a_training_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run.backend=mcgs"]) == 2
    assert "known: trl, tinker" in capsys.readouterr().err
