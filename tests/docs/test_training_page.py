"""docs/training.md and docs/credit.md: sessions run as they stand, tables and settings are true."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
import yaml

import kernelgym
from kernelgym.reading import options
from kernelgym_train.cli import main
from kernelgym_train.config.config import FREE_ON_RESUME, Config, ready_configs
from kernelgym_train.credit.credit import NORMALISERS
from kernelgym_train.credit.estimators import ESTIMATORS
from kernelgym_train.run import runlog

DOCS = Path(kernelgym.__file__).parents[2] / "docs"
TRAINING = (DOCS / "training.md").read_text()
CREDIT = (DOCS / "credit.md").read_text()


@pytest.mark.parametrize(("page", "least"), [("training.md", 4), ("credit.md", 4)])
def test_sessions_run_as_they_stand(page: str, least: int) -> None:
    found = doctest.testfile(str(DOCS / page), module_relative=False)
    assert found.attempted >= least and found.failed == 0


def test_tables_name_everything_in_order() -> None:
    rows = re.findall(r"^\| `(\w+)`( \(default\))? \|", CREDIT, re.MULTILINE)
    named = [name for name, _ in rows]
    assert named[:6] == named[6:12] == list(ESTIMATORS)
    assert named[12:] == list(NORMALISERS)
    defaults = {name for name, default in rows if default}
    assert defaults == {Config().credit.estimator, Config().credit.normaliser}


def test_settings_are_named_as_they_are() -> None:
    paths = {key.path for key in options(Config)}
    sections = {path.partition(".")[0] for path in paths}
    named = set(re.findall(r"`'?([a-z]+(?:\.[a-z_]+)+)", TRAINING + CREDIT))
    assert {name for name in named if name.partition(".")[0] in sections} <= paths
    assert {"credit.estimator", "judge.cache"} <= named


def test_settings_free_on_resume_are_named() -> None:
    section = TRAINING.partition("**Resume.**")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([a-z_.]+)`", section))
    judged = {path for path in FREE_ON_RESUME if path.startswith("judge.")}
    assert set(FREE_ON_RESUME) - judged <= named and "judge.workers" in named


def test_explained_configuration_is_the_ready_one() -> None:
    """What the page shows are keys and values of the file."""
    shown = yaml.safe_load(TRAINING.partition("```yaml\n")[2].partition("```")[0])
    whole = yaml.safe_load(ready_configs()["qwen2_5_coder_7b_kernelbench"].read_text())
    for section, keys in shown.items():
        assert keys.items() <= whole[section].items(), section


def test_files_of_a_run_are_those_of_its_log() -> None:
    drawn = str(runlog.__doc__).partition("runs/<name>/\n")[2].partition("\n\n")[0]
    files = {line.split()[0].rstrip("/") for line in drawn.splitlines()}
    table = TRAINING.partition("## The run folder\n")[2].partition("\n**")[0]
    named = {name.rstrip("/") for name in re.findall(r"`([\w.]+/?)`", table)}
    assert {"config.yaml", "checkpoints"} <= files <= named


def test_options_of_the_command_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for line in re.findall(r"kernelgym-train (.*)", TRAINING):
        for option in re.findall(r"--[a-z-]+", line.partition("#")[0]):
            assert option in text, option
