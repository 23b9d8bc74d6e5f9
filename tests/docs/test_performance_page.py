"""docs/performance.md: what the result files hold, and commands that exist."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys

import pytest

from benchmarks import tables
from benchmarks.env import context_cost
from kernelgym.cli.redteam import Redteam
from kernelgym.prompts.observer import HISTORY_TOKENS

WRITTEN = tables.PAGE.read_text()


def test_page_is_what_the_results_say() -> None:
    command = [sys.executable, "-m", "benchmarks.tables", "--check"]
    done = subprocess.run(command, cwd=tables.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_changed_figure_is_found() -> None:
    assert "20.0" in WRITTEN
    (line,) = tables.differences(WRITTEN.replace("| 20.0 |", "| 21.0 |"))
    assert "| 21.0 |" in line and "| 20.0 |" in line


@pytest.mark.parametrize("commit", ["`0000000` of 2020-01-01", tables.UNCOMMITTED])
def test_unknown_commit_of_a_result_is_accepted(commit: str) -> None:
    changed = re.sub(r"(?<=- Recorded in )[^:]*", commit, WRITTEN)
    assert changed != WRITTEN and not tables.differences(changed)


def test_every_result_file_has_a_section() -> None:
    shown = {section.result for section in tables.SECTIONS}
    assert shown == {path.name for path in tables.RESULTS.glob("*.json")}


@pytest.mark.parametrize("command", sorted({section.command for section in tables.SECTIONS}))
def test_command_and_its_options_exist(command: str) -> None:
    if command.startswith("kernelgym redteam"):
        source = " ".join(f"--{name.replace('_', '-')}" for name in Redteam.__dataclass_fields__)
    else:
        module = re.match(r"python -m (\S+)", command)
        assert module
        source = inspect.getsource(importlib.import_module(module[1]))
    for option in re.findall(r"--[a-z-]+", command):
        assert option in source, option


def test_context_costs_are_those_of_today() -> None:
    kept = json.loads((tables.RESULTS / "context_cost.json").read_text())
    assert context_cost.costs() == kept["unlimited"]
    budgeted = {"tokens": HISTORY_TOKENS, "costs": context_cost.costs(budget=HISTORY_TOKENS)}
    assert budgeted == kept["budgeted"]
