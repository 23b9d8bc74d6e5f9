"""``kernelgym report``: what it prints and writes, and what it refuses, in one line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from kernelgym.cli import main
from kernelgym.rulesets import RULESETS
from support.benchmark_runs import eval_run
from support.html_pages import parsed


def test_report_prints_the_score_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(eval_run(tmp_path / "one", {"A": "2 w", "B": "w w"}))]) == 0
    out = capsys.readouterr().out
    assert "one solved 1 of 2 problems" in out and "correct, of all first answers" in out
    assert "25.0 %" in out


def test_report_with_an_empty_page_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(eval_run(tmp_path / "one", {"A": "r"})), "--html", ""]) == 2
    assert "--html takes a FILE" in capsys.readouterr().err


def test_report_writes_page_and_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, page = eval_run(tmp_path / "one", {"A": "2 w"}), tmp_path / "page.html"
    assert main(["report", str(folder), "--json", "--html", str(page)]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["runs"][0]["solved"] == 1 and "page.html" in told.err
    assert "solved 1 of 1 problems" in parsed(page.read_text()).text


def test_report_prints_answers_as_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(eval_run(tmp_path / "one", {"A": "w2"})), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["status"], row["speedup"]) for row in rows] == [("wrong", ""), ("correct", "2.0")]


def test_report_compares_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [str(eval_run(tmp_path / n, {"A": w})) for n, w in (("one", "w"), ("two", "r"))]
    assert main(["report", *sides]) == 0
    assert "two against one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "needs a run"),
        (["{run}", "--json", "--csv"], "give one of them"),
        (["{run}/nowhere"], "nothing at"),
        (["{run}", "{other}"], "different rules are not compared"),
        (["{empty}"], "holds no episode"),
        (["{run}", "--baseline", "{run}/no.json"], "cannot read the baselines"),
        (["{run}", "--html", "{run}/plan.json/x.html"], "cannot write"),
        (["{run}/plan.json", "--html", "{run}/plan.json"], "is the file that is read"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    places = {
        "run": eval_run(tmp_path / "run", {"A": "r"}),
        "other": eval_run(tmp_path / "o", {"A": "r"}, ruleset=RULESETS["kernelbench"].label),
        "empty": eval_run(tmp_path / "empty", {}),
    }
    given = [each.format(**places) for each in arguments]
    assert main(["report", *given]) == 2
    said = capsys.readouterr().err
    assert says in said and len(said.splitlines()) == 1
