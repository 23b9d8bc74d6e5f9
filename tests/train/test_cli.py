"""The `kernelgym-train` command: a whole run, and what is said when something is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelgym import UsageError, __version__
from kernelgym.testing import ScriptedEvaluator
from kernelgym_train.cli import _parser, main
from support import tiny

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = (
    *("env.suite=Synthetic", "env.split=rl", "env.levels=[1]", "env.max_turns=2"),
    *("env.ruleset=kernelbench", "env.examples=zero_shot", "evaluation.split=heldout"),
    *("evaluation.limit=3", "evaluation.samples=2", "evaluation.pass_at=[1,2]"),
    *("evaluation.every=2", "sampling.problems_per_step=2", "sampling.group_size=2"),
    *("sampling.max_new_tokens=6", "sampling.max_prompt_tokens=4000", "sampling.refill_rounds=0"),
    *("optimiser.steps=2", "optimiser.micro_batch=4", "model.lora_rank=4", "model.device=cpu"),
    *("model.gradient_checkpointing=false", "run.save_every=1", "logging.tokens=true"),
)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    words = tiny.tokenizer()
    tiny.model(len(words)).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedEvaluator]:
    """Have a script judge in place of this machine; returns the evaluators that were made."""
    from kernelgym_train.launch import launch

    made: list[ScriptedEvaluator] = []

    def evaluator(
        config: Any, *, timing: bool | None = None, cache: bool | None = None
    ) -> ScriptedEvaluator:
        made.append(ScriptedEvaluator(tiny.judge, ruleset=config.env.ruleset))
        return made[-1]

    monkeypatch.setattr(launch, "run_evaluator", evaluator)
    return made


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_whole_run_resumed_evaluated_and_merged(
    tmp_path: Path,
    model_folder: Path,
    scripted: list[ScriptedEvaluator],
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    assert main(["--backend", "trl", *given]) == 0
    run = tmp_path / "one"
    assert capsys.readouterr().out.strip() == str(run)
    assert all(evaluator.closed for evaluator in scripted)
    for name in ("config.yaml", "manifest.json", "metrics.jsonl", "trajectories.jsonl"):
        assert (run / name).is_file(), name
    for name in ("tokens.jsonl", "verdicts.jsonl", "checkpoints.jsonl", "evaluations.jsonl"):
        assert (run / name).is_file(), name
    assert list((run / "tensorboard").glob("events*"))
    assert (run / "model" / "adapter_model.safetensors").is_file()
    (tested,) = rows(run / "evaluations.jsonl")
    assert tested["step"] == 2 and 0.0 <= tested["eval/pass@1"] <= tested["eval/pass@2"] <= 1.0
    assert "greedy/pass@1" in tested and tested["time/eval_s"] > 0
    saved = rows(run / "checkpoints.jsonl")
    assert saved[-1]["score"] == pytest.approx(tested["eval/pass@1"])

    assert main(["--resume", str(run), "optimiser.steps=3"]) == 0
    assert [row["step"] for row in rows(run / "metrics.jsonl")] == [0, 1, 2]
    model = (run / "model" / "adapter_model.safetensors").read_bytes()
    last = rows(run / "checkpoints.jsonl")[-1]["weights"]
    capsys.readouterr()
    assert main(["--resume", str(run), "resume_from_batch=7"]) == 2
    assert "no checkpoint after 7 steps; those it has: 1, 2, 3" in capsys.readouterr().err
    assert main(["--resume", str(run), "--from-step", "1", "optimiser.steps=3"]) == 0
    assert [row["step"] for row in rows(run / "checkpoints.jsonl")] == [1, 2, 3]
    assert rows(run / "checkpoints.jsonl")[-1]["weights"] == last, "as if it had not gone back"
    assert (run / "model" / "adapter_model.safetensors").read_bytes() == model
    capsys.readouterr()
    assert main(["--evaluate", str(run)]) == 0
    assert "eval/pass@1 " in capsys.readouterr().out
    assert main(["--merge", str(run)]) == 0
    assert (run / "merged" / "model.safetensors").is_file()
    assert main(["--backend", "trl", *given]) == 2
    assert "--resume" in capsys.readouterr().err


def test_untrained_model_is_evaluated(
    tmp_path: Path,
    model_folder: Path,
    scripted: list[ScriptedEvaluator],
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=before"]
    assert main(["--evaluate", "untrained", *given, "evaluation.greedy=false"]) == 0
    said = capsys.readouterr()
    assert "eval/pass@1 " in said.out and f"kept in '{tmp_path}/before'" in said.err
    (row,) = rows(tmp_path / "before" / "evaluations.jsonl")
    assert row["step"] == 0 and f"{row['eval/pass@1']:.4f}" in said.out


def test_a_dry_run_prints_the_settings_and_makes_nothing(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*SMALL, f"model_name={model_folder}", f"log_path={tmp_path}/run", "batch_size=2"]
    assert main(["--dry-run", *given]) == 0
    out = capsys.readouterr().out
    assert "problems_per_step: 2" in out and "problems    " in out and "peak" in out
    assert f"id: {model_folder}" in out and "model_name" not in out, "flat names are shown as ours"
    assert "reward      stage2 after 0 steps: format 0.1, compile 0.2, trials 0.35" in out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_tells_all_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*SMALL, "model.id=/nowhere/at/all", f"run.folder={tmp_path}", "run.name=there"]
    (tmp_path / "there").mkdir()
    assert main(["--dry-run", *given, "env.split=rll"]) == 2
    said = capsys.readouterr()
    told = [line for line in said.out.splitlines() if line.startswith("missing ")]
    assert len(told) == 3 and "3 things are missing" in said.err
    for line, part in zip(told, ("there is a run in", "rll", "cannot be loaded"), strict=True):
        assert part in line


def test_a_dry_run_for_a_gpu_that_is_not_here(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "model.device=auto"]
    assert main(["--dry-run", "--assume-gpu", "80", *given]) == 0
    assert "fits into 80 GiB" in capsys.readouterr().out
    assert main(["--dry-run", "--assume-gpu", "0.001", *given]) == 2
    assert "sampling.batch_size" in capsys.readouterr().err
    assert main(["--assume-gpu", "80", *given]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--backend", "mcgs"], "input= is missing"),
        (["--backend", "trll"], "did you mean trl"),
        (["optimiser.step=3"], "did you mean steps"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--resume", "nowhere"], "no config.yaml"),
        (["--evaluate", "nowhere"], "no config.yaml"),
        (["--evaluate", "tinker://run/weights/a"], "the backend is trl; give --backend tinker"),
        (["--merge", "nowhere"], "no adapter"),
        (["--from-step", "3"], "name its folder by --resume RUN"),
        (["--resume", "a", "--merge", "b"], "exclude each other"),
        (["model.id=/nowhere/at/all"], "cannot be loaded"),
        (["model.device=cuda:7"], "model.device=cuda:7 is not there"),
        (["sampling.group_size=3", "optimiser.micro_batch=7"], "do not divide"),
        (["env.split=rll"], "unknown"),
        (["evaluation.split=rl"], "are also training problems"),
    ],
)
def test_faults_are_said_in_one_line_with_the_fix(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    model_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not arguments[0].startswith("--"):
        folder = [f"model.id={model_folder}", f"run.folder={tmp_path}"]
        arguments = ["--backend", "trl", *SMALL, *folder, *arguments]
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1, err
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def test_a_run_of_another_configuration_is_not_resumed(
    tmp_path: Path,
    model_folder: Path,
    scripted: list[ScriptedEvaluator],
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    assert main([*given, "optimiser.steps=1", "evaluation.every=0"]) == 0
    capsys.readouterr()
    assert main(["--resume", str(tmp_path / "one"), "optimiser.learning_rate=1"]) == 2
    assert "optimiser.learning_rate" in capsys.readouterr().err
    about = tmp_path / "one" / "manifest.json"
    kept = about.read_text()
    label = json.loads(kept)["ruleset"]
    about.write_text(kept.replace(label, "strict@19248b98"))
    assert main(["--resume", str(tmp_path / "one")]) == 2
    err = capsys.readouterr().err
    assert "was judged by ruleset 'strict@19248b98'" in err and label in err
    about.write_text(kept)
    # A setting that came with a later version has its default, and one that is done is done.
    own = tmp_path / "one" / "config.yaml"
    lines = own.read_text().splitlines(keepends=True)
    own.write_text("".join(line for line in lines if "lora_dropout" not in line))
    before = (tmp_path / "one" / "metrics.jsonl").read_bytes()
    assert main(["--resume", str(tmp_path / "one")]) == 0
    assert (tmp_path / "one" / "metrics.jsonl").read_bytes() == before


def test_a_guard_that_stops_a_run_is_a_failure(
    tmp_path: Path,
    model_folder: Path,
    scripted: list[ScriptedEvaluator],
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}"]
    guard = ["guards.collapse=stop", "guards.least_entropy=9", "evaluation.every=0"]
    assert main([*given, *guard]) == 1
    assert "stopped after 1 steps: collapse/entropy" in capsys.readouterr().err


def test_run_failing_before_a_step_leaves_no_folder(
    tmp_path: Path,
    model_folder: Path,
    scripted: list[ScriptedEvaluator],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    given += ["evaluation.every=0", "optimiser.steps=1"]
    from kernelgym_train.launch import launch

    whole = launch.run_evaluator

    def broken(config: Any, **options: Any) -> ScriptedEvaluator:
        evaluator = whole(config, **options)

        def script(problem: Any, kernel: Any) -> Any:
            raise UsageError("the judge refuses")

        return ScriptedEvaluator(script, ruleset=evaluator.capabilities.ruleset)

    with monkeypatch.context() as patch:
        patch.setattr(launch, "run_evaluator", broken)
        assert main([*given, "env.max_turns=1", "optimiser.micro_batch=2"]) == 2
    assert "the judge refuses" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(given) == 0, "the corrected command takes the name"


def test_run_interrupted_at_once_leaves_no_folder(
    tmp_path: Path,
    model_folder: Path,
    scripted: list[ScriptedEvaluator],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from kernelgym_train.backends.trl import train

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "_make_trainer", interrupted)
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}"]
    assert main(given) == 130
    assert "before a step was done; no run was kept" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_run_after_sigterm_has_finished_its_step_and_goes_on(
    tmp_path: Path,
    model_folder: Path,
    scripted: list[ScriptedEvaluator],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from kernelgym_train.run.steps import Steps

    play = Steps.play

    async def terminated(self: Steps, step: int, *args: Any, **options: Any) -> Any:
        if step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return await play(self, step, *args, **options)

    run = tmp_path / "one"
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    given += ["optimiser.steps=3", "evaluation.every=0", "run.save_every=100"]
    with monkeypatch.context() as patch:
        patch.setattr(Steps, "play", terminated)
        assert main(given) == 143
    said = capsys.readouterr().err
    assert "this step is finished and saved" in said and f"--resume {run}" in said
    assert [row["step"] for row in rows(run / "checkpoints.jsonl")] == [2]
    assert rows(run / "events.jsonl")[-1]["event"] == "interrupted"
    told = (run / "logs.log").read_text()
    assert "INFO step 2/3  reward" in told and "INFO interrupted while " in told
    assert f"INFO interrupted; continue with --resume {run}" in told
    assert main(["--resume", str(run)]) == 0
    assert [row["step"] for row in rows(run / "metrics.jsonl")] == [0, 1, 2]


def test_resumed_run_that_is_finished_says_so(
    tmp_path: Path,
    model_folder: Path,
    scripted: list[ScriptedEvaluator],
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "one"
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    assert main([*given, "optimiser.steps=1", "evaluation.every=0"]) == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    made = len(scripted)
    assert main(["--resume", str(run)]) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(run) and said.err.count("\n") == 1
    assert "is finished: it did 1 steps" in said.err and "optimiser.steps" in said.err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert len(scripted) == made, "nothing was started"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("sampling.max_new_tokens=4000",), "does not fit into the model's context of 4096"),
        (("sampling.max_prompt_tokens=4094",), "lower sampling.max_prompt_tokens to at most 4090"),
        (("sampling.max_prompt_tokens=3",), "above sampling.max_prompt_tokens=3"),
    ],
)
@pytest.mark.parametrize("dry", [["--dry-run"], []], ids=["dry", "run"])
def test_prompt_beyond_the_context_is_refused(
    dry: list[str],
    settings: tuple[str, ...],
    said: str,
    tmp_path: Path,
    model_folder: Path,
    scripted: list[ScriptedEvaluator],
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*dry, *SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", *settings]
    assert main(given) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [] and not scripted


def test_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help-settings"]) == 0
    out = capsys.readouterr().out
    assert "optimiser.learning_rate = 1e-05" in out and "Learning rate after the warm-up" in out
    assert main(["--help"]) == 0


def test_every_option_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    rows = [
        line.split("|")[1]
        for line in page.split("\n## `kernelgym-train`\n")[1].splitlines()
        if line.startswith("| `")
    ]
    listed = {name for row in rows for name in re.findall(r"`(-[\w-]+)", row)}
    assert listed == set(_parser().option_strings)


def test_importing_the_command_is_light() -> None:
    heavy = {"torch", "transformers", "trl", "datasets"}
    code = (
        "import sys, kernelgym_train.cli, kernelgym_train.launch.launch\n"
        f"sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_run_on_real_verdicts(tmp_path: Path, model_folder: Path) -> None:
    """Kernels are judged in processes of the judge; the trainer's has no interpreter of Triton."""
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    settings = ["optimiser.steps=1", "evaluation.every=0", "judge.workers=1"]
    command = [sys.executable, "-m", "kernelgym_train.cli", *given, *settings]
    code = "import sys; from kernelgym_train.cli import main; sys.exit(main(sys.argv[1:]))"
    command[1:3] = ["-c", code]
    subprocess.run(command, check=True, timeout=300)
    kept = rows(tmp_path / "one" / "verdicts.jsonl")
    assert kept and all(row["verdict"]["status"] != "unavailable" for row in kept)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--confg", "x"), "unknown option '--confg'; did you mean --config?; known: "),
        (("--dry-rn",), "unknown option '--dry-rn'; did you mean --dry-run?"),
        (
            ("--backend", "trk"),
            "unknown backend 'trk'; did you mean trl?; known: trl, tinker",
        ),
    ],
)
def test_option_mistyped_is_corrected_in_a_line(
    argv: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert not out and says in err and len(err.splitlines()) == 1


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kernelgym {__version__}\n"


def test_pipe_closed_is_no_error() -> None:
    argv = [sys.executable, "-m", "kernelgym_train", "--help-settings"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=120), err) == (0, b"")
