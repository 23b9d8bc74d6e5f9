"""`--sizes small` and ids that end in @small, in each command."""

from __future__ import annotations

import json

import pytest

from kernelgym.cli.lint import chosen_problems
from support.small_forms import write_checkout

FORM = "KernelBench/L1/21@small"


@pytest.fixture(autouse=True)
def checkout(folder, monkeypatch, tmp_path_factory):
    root = write_checkout(tmp_path_factory.mktemp("checkout"))
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))


def test_ls_small_lists_forms(run, folder):
    code, out, _ = run("ls", "--suite", "KernelBench", "--sizes", "small")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()][:2] == ["id", FORM]
    assert "4 problems have no small form" in out and "KernelBench/L3/11" in out
    code, _, err = run("ls", "--sizes", "small")
    assert code == 2 and "--sizes" in err


@pytest.mark.parametrize("given", [["KernelBench/L1/21", "--sizes", "small"], [FORM]])
def test_show_small_prints_small_source(run, folder, given):
    code, out, _ = run("show", *given)
    assert code == 0 and FORM in out and "393216" not in out
    assert "H100" not in out, "a time in full size says nothing of the form"


def test_check_small_judges_the_form(run, judges, folder):
    asked = ("--problem", "KernelBench/L1/21", "--sizes", "small")
    code, out, _ = run("check", "right.py", *asked)
    assert code == 0 and out.startswith(FORM)
    assert judges[0].judged[0].problem.id == FORM
    code, _, err = run("check", "right.py", "--problem", "Synthetic/L1/1", "--sizes", "small")
    assert code == 2 and "only KernelBench" in err


def test_batch_rows_keep_sizes_apart(run, judges, folder):
    rows = [
        {"id": 1, "problem": "KernelBench/L1/21", "kernel": "right.py"},
        {"id": 2, "problem": "KernelBench/L1/21", "kernel": "right.py", "sizes": "small"},
        {"id": 3, "problem": FORM, "kernel": "right.py"},
    ]
    (folder / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--out", "out.jsonl", "--memory", "900GB")
    assert run("check", "--batch", "jobs.jsonl", *options)[0] == 0
    out = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [row["problem"] for row in out] == ["KernelBench/L1/21", FORM, FORM]
    assert out[0]["problem_digest"] != out[1]["problem_digest"] == out[2]["problem_digest"]
    code, _, err = run(
        *("check", "--batch", "jobs.jsonl", "--out", "out.jsonl", "--sizes", "small")
    )
    assert code == 2 and "out.jsonl" in err, "rows of full size do not stand for small ones"


def test_batch_row_with_unknown_sizes_is_refused(run, judges, folder):
    row = {"id": 1, "problem": "KernelBench/L1/21", "kernel": "right.py", "sizes": 7}
    (folder / "jobs.jsonl").write_text(json.dumps(row) + "\n")
    code, _, err = run("check", "--batch", "jobs.jsonl", "--out", "out.jsonl")
    assert code == 2 and "line 1" in err and "'sizes' must be full or small" in err


def test_lint_small_takes_forms_of_targets():
    for target in ("KernelBench", "KernelBench/L1", "KernelBench/L1/20-25", "KernelBench/L1/21"):
        assert [problem.id for problem in chosen_problems([target], "small")] == [FORM]
    assert chosen_problems([FORM])[0].id == FORM


def test_play_small_shows_the_form(run, judges, folder, monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    asked = ("--problem", "KernelBench/L1/21", "--sizes", "small")
    code, out, _ = run("play", *asked)
    assert code == 0 and FORM in out and "393216" not in out
