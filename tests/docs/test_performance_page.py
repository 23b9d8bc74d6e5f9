"""docs/performance.md: what the result files hold, in few lines, and commands that exist."""

from __future__ import annotations

import importlib
import inspect
import json
import re

import pytest

from benchmarks import tables
from benchmarks.env import context_cost
from benchmarks.sections import ELSEWHERE, LANGUAGES, RESULTS, SECTIONS
from kernelgym.cli.redteam import RedteamCommand
from kernelgym.prompts.observer import HISTORY_TOKENS

WRITTEN = tables.PAGE.read_text()
ANSWERS = [answer for section in SECTIONS for answer in (*section.tables, *section.sentences)]
LONGEST = 250  # lines: a reader looks for an answer, raw tables are in benchmarks/results


def test_page_is_what_the_results_say() -> None:
    assert tables.differences(WRITTEN, tables.page()) == [], "run `python -m benchmarks.tables`"


def test_tables_of_the_page_on_languages_are_what_the_results_say() -> None:
    written = tables.LANGUAGES_PAGE.read_text()
    wanted = tables.languages_page(written)
    assert tables.differences(written, wanted) == [], "run `python -m benchmarks.tables`"
    assert "| `triton` | softmax | correct |" in wanted and "| new source |" in wanted


def test_changed_figure_is_found() -> None:
    assert "| 98.4 |" in WRITTEN
    found = tables.differences(WRITTEN.replace("| 98.4 |", "| 98.5 |"), tables.page())
    assert len(found) == 2 and "| 98.5 |" in found[0] and "| 98.4 |" in found[1]


def test_page_is_short_and_names_every_result_file() -> None:
    assert len(WRITTEN.splitlines()) <= LONGEST
    for path in RESULTS.glob("*.json"):
        assert f"[{path.name}](../benchmarks/results/{path.name})" in WRITTEN
    shown = {answer.result for answer in ANSWERS}
    assert not shown & set(ELSEWHERE)


@pytest.mark.parametrize("command", sorted({answer.command for answer in (*ANSWERS, *LANGUAGES)}))
def test_command_and_its_options_exist(command: str) -> None:
    if command.startswith("git "):
        return  # a program of an earlier commit, whose feature is gone
    if command.startswith("kernelgym redteam"):
        source = " ".join(
            f"--{name.replace('_', '-')}" for name in RedteamCommand.__dataclass_fields__
        )
    else:
        module = re.match(r"python -m (\S+)", command)
        assert module
        source = inspect.getsource(importlib.import_module(module[1]))
    for option in re.findall(r"--[a-z-]+", command):
        assert option in source, option


def test_context_costs_are_those_of_today() -> None:
    kept = json.loads((RESULTS / "context_cost.json").read_text())
    assert context_cost.costs() == kept["unlimited"]
    budgeted = {"tokens": HISTORY_TOKENS, "costs": context_cost.costs(budget=HISTORY_TOKENS)}
    assert budgeted == kept["budgeted"]
