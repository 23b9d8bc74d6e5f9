"""docs/reports.md: its session runs, and letters, pages and options are those that there are."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import kernelgym
from kernelgym.benchmark.pages.view import STATES
from kernelgym.cli import option_names
from kernelgym.cli.report import ReportCommand

PAGE = Path(kernelgym.__file__).parents[2] / "docs" / "reports.md"


def test_session_runs_as_it_stands() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 9 and found.failed == 0


def test_letters_of_the_wall_are_told() -> None:
    (told,) = re.findall(r"\*\*Letters on the wall\*\*.*?\n\n", PAGE.read_text(), re.DOTALL)
    assert set(re.findall(r"`(.)`", told)) == {letter for letter, _, _ in STATES.values()}


def test_options_exist() -> None:
    known = set(option_names(ReportCommand))
    written = re.findall(r"kernelgym report[^\n#`]*", PAGE.read_text())
    assert len(written) >= 5
    assert {word for line in written for word in re.findall(r"--[a-z-]+", line)} <= known
