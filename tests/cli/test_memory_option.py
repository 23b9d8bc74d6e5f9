"""`--memory`: problems that need more than the budget are refused before anything runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelgym.testing import SAMPLE_PROBLEM

RELU = "KernelBench/L1/19"
REFUSED = f"judging problem '{RELU}' takes at least 26.8 GB"


@pytest.fixture
def bench(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one large problem, by its name, and one small one; nothing may be started."""
    level = folder / "KernelBench" / "level1"
    level.mkdir(parents=True)
    for name in ("19_ReLU", "40_LayerNorm"):
        (level / f"{name}.py").write_text(f"{SAMPLE_PROBLEM.source}# {name}\n")
    monkeypatch.setenv("KERNELBENCH_ROOT", str(folder))
    monkeypatch.setenv("KERNELGYM_CACHE", str(folder / "cache"))

    started = subprocess.Popen

    def refuse(command: Sequence[str], *rest: Any, **options: Any) -> Any:
        if command[-1] == "--version":  # an evaluator names its compiler
            return started(command, *rest, **options)
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("check", "right.py", "--problem", RELU),
        ("check", "refused.py", "--problem", RELU),  # whatever the kernel is
        ("lint", RELU),
        ("lint", "KernelBench/L1/19,19"),
        ("lint", "KernelBench/L1/40", RELU),
        ("baseline", RELU),
        ("play", "--problem", RELU),
    ],
    ids=lambda command: " ".join(command),
)
def test_large_problem_is_a_usage_error(run, bench, command):
    code, out, err = run(*command, "--memory", "12GB")
    assert (code, out) == (2, "")
    assert REFUSED in err and "12.0 GB (12000000000 bytes)" in err and "--memory" in err
    assert err.count("\n") == 1


def test_batch_names_the_line_before_judging(run, bench):
    jobs = bench / "jobs.jsonl"
    rows = [
        {"id": number, "problem": problem, "kernel": "right.py"}
        for number, problem in enumerate(("KernelBench/L1/40", RELU))
    ]
    jobs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = run("check", "--batch", jobs, "--out", "out.jsonl", "--memory", "12GB")
    assert code == 2 and f"line 2: {REFUSED}" in err
    assert not (bench / "out.jsonl").exists()


def test_lint_of_a_level_leaves_the_large_untested(run, bench):
    code, out, err = run("lint", "KernelBench/L1", "--memory", "1MB", "--json", "found.json")
    assert (code, err) == (1, "")
    found = json.loads((bench / "found.json").read_text())["results"]
    assert [result["tested"] for result in found] == [False, False]
    assert REFUSED in found[0]["detail"] and "2 not tested" in out
    assert not list((bench / "cache").rglob("*.json")), "it may be tested under a larger budget"


@pytest.mark.parametrize(
    "command", [("check", "right.py", "--problem", "problem.py"), ("lint", "problem.py")]
)
def test_memory_that_is_no_size_is_a_usage_error(run, folder, command):
    code, _, err = run(*command, "--memory", "lots")
    assert code == 2 and "12GB, 8GiB or 6e9, got 'lots'" in err


def test_show_says_what_judging_takes(run, bench):
    code, out, _ = run("show", RELU)
    assert code == 0 and "judging takes at least" in out and "26.8 GB" in out
