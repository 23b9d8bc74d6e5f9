"""docs/benchmarking.md: its snippets run, its options and files are those that there are."""

from __future__ import annotations

import dataclasses
import doctest
import re
import shlex
from pathlib import Path

import pytest
import yaml

from kernelgym.benchmark.run import folder, plan
from kernelgym.benchmark.run.evaluate import MACHINE_FILE
from kernelgym.benchmark.run.generations import AnswerKey, Generation
from kernelgym.benchmark.run.spending import read_price
from kernelgym.cli import judging, main, option_names
from kernelgym.cli.eval import EvalCommand
from kernelgym.testing import ScriptedEvaluator
from support.chat_server import chat_server
from support.evals import lines_of

PAGE = (Path(__file__).parents[2] / "docs" / "benchmarking.md").read_text()


def test_snippets_run_as_they_stand() -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner()
    test = doctest.DocTestParser().get_doctest(PAGE, {}, "benchmarking", "benchmarking.md", 0)
    assert len(test.examples) >= 4
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_every_option_is_there_and_no_other() -> None:
    known = set(option_names(EvalCommand))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    assert named - known <= {"--html"}
    assert known - named <= {"--name", "--seed", "--verbose"}


def test_files_of_a_folder_are_named() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", PAGE.partition("## The folder")[2], re.M))
    assert set(rows) == {
        *(plan.PLAN_FILE, MACHINE_FILE, folder.GENERATIONS, folder.VERDICTS),
        *(folder.FAILURES, folder.TRAJECTORIES),
    }
    fields = [*AnswerKey._fields, *(field.name for field in dataclasses.fields(Generation))]
    assert re.findall(r"`(\w+)`", rows[folder.GENERATIONS]) == fields


def test_price_file_of_the_page_can_be_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    price = read_price(str(path), next(iter(yaml.safe_load(text)["models"])))
    assert price.cached == 0.1


def commands(title: str, endpoint: str = "") -> list[list[str]]:
    """Return the arguments of a section's commands."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\$ kernelgym (.*)$", section, re.MULTILINE)
    return [shlex.split(line.replace("$ENDPOINT", endpoint)) for line in lines]


def scripted(device: str, ruleset: object, *_: object) -> ScriptedEvaluator:
    return ScriptedEvaluator(ruleset=ruleset, device=device)  # type: ignore[arg-type]


def follow(endpoint: str) -> None:
    """Run the five commands."""
    five = commands("From a model's name to a page", endpoint)
    assert len(five) == 5
    for arguments in five:
        assert main(arguments) == 0, arguments


def test_five_commands_run_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(judging, "make_evaluator", scripted)
    with chat_server() as server:
        follow(server.url)
    said = capsys.readouterr().out
    assert "kernel-writer-0725 answers at" in said and "requests: 8 to 16" in said
    assert "16 of 16 episodes ended; 8 answers (8 were on disk)" in said
    assert len(lines_of(tmp_path / "runs" / "first", "generations")) == 16
    assert (tmp_path / "first.html").stat().st_size > 0


@pytest.mark.slow
def test_five_commands_run_with_the_judge_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with chat_server() as server:
        follow(server.url)
    verdicts = lines_of(tmp_path / "runs" / "first", "verdicts")
    assert {row["verdict"]["status"] for row in verdicts} <= {"wrong", "correct", "runtime_error"}


def test_command_without_a_model_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(judging, "make_evaluator", scripted)
    (arguments,) = commands("Without a model")
    assert main(arguments) == 0
    assert len(lines_of(tmp_path / "runs" / "scripted", "verdicts")) == 8
