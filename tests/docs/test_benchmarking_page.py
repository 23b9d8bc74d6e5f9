"""docs/benchmarking.md: its snippets run, its options and files are those that there are."""

from __future__ import annotations

import dataclasses
import doctest
import re
from pathlib import Path

import yaml

from kernelgym.benchmark.run import folder, plan
from kernelgym.benchmark.run.evaluate import MACHINE_FILE
from kernelgym.benchmark.run.generations import Generation, Key
from kernelgym.benchmark.run.remote import DEFAULT_MAX_TOKENS
from kernelgym.benchmark.run.spending import read_price
from kernelgym.cli.eval import Eval

PAGE = (Path(__file__).parents[2] / "docs" / "benchmarking.md").read_text()


def test_snippets_run_as_they_stand() -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner()
    test = doctest.DocTestParser().get_doctest(PAGE, {}, "benchmarking", "benchmarking.md", 0)
    assert len(test.examples) >= 4
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_every_option_is_there_and_no_other() -> None:
    known = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(Eval)}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    assert named - known <= {"--html"}
    assert known - named <= {"--name", "--seed", "--verbose"}


def test_files_of_a_folder_are_named() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", PAGE.partition("## The folder")[2], re.M))
    assert set(rows) == {
        *(plan.PLAN_FILE, MACHINE_FILE, folder.GENERATIONS, folder.VERDICTS),
        *(folder.FAILURES, folder.TRAJECTORIES),
    }
    fields = [*Key._fields, *(field.name for field in dataclasses.fields(Generation))]
    assert re.findall(r"`(\w+)`", rows[folder.GENERATIONS]) == fields


def test_prices_and_limits_are_those_of_the_code(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    price = read_price(str(path), next(iter(yaml.safe_load(text)["models"])))
    assert price.cached == 0.1
    assert f"`--max-tokens` ({DEFAULT_MAX_TOKENS} if" in PAGE
