"""docs/training.md: its sessions run as they stand, and its tables are whole."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import kernelgym
from kernelgym_train.config.config import Config
from kernelgym_train.config.settings import describe
from kernelgym_train.credit.credit import NORMALISERS
from kernelgym_train.credit.estimators import ESTIMATORS

PAGE = Path(kernelgym.__file__).parents[2] / "docs" / "training.md"


def test_sessions_run_as_they_stand() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 5 and found.failed == 0


def test_tables_name_everything_in_order() -> None:
    text = PAGE.read_text()
    rows = re.findall(r"^\| `(\w+)`( \(default\))? \|", text, re.MULTILINE)
    named = [name for name, _ in rows]
    assert named[:6] == named[6:12] == list(ESTIMATORS)
    assert named[12:15] == list(NORMALISERS)
    defaults = {name for name, default in rows if default}
    assert defaults == {Config().credit.estimator, Config().credit.normaliser}


def test_settings_are_named_as_they_are() -> None:
    paths = {key.path for key in describe(Config)}
    sections = {path.partition(".")[0] for path in paths}
    named = set(re.findall(r"`([a-z]+\.[a-z_]+)", PAGE.read_text()))
    assert {name for name in named if name.partition(".")[0] in sections} <= paths
    assert "credit.estimator" in named
