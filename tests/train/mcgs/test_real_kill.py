"""A real search, killed while it judges, and given again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kernelgym_train.mcgs.examples import EXAMPLES

BUDGET = 9


def command(folder: Path, *more: str) -> list[str]:
    """Return the command that searches a small matmul."""
    problem, kernel = EXAMPLES["matmul"]
    files = {"problem.py": problem.source.replace("512", "96"), "kernel.py": kernel.source}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    given = {
        **{name.removesuffix(".py"): str(folder / name) for name in files},
        "outdir": str(folder / "out"),
        "algo": "mcgs",
        "budget_builds": str(BUDGET),
        "patience": "0",
    }
    settings = [f"{key}={value}" for key, value in given.items()]
    return [sys.executable, "-m", "kernelgym_train", "--backend", "mcgs", *settings, *more]


def events(folder: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a search's log, so far."""
    logs = list((folder / "out" / "kernels").glob("*/events.jsonl"))
    text = logs[0].read_text(encoding="utf-8") if logs else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def judged(folder: Path) -> list[str]:
    return [row["key"] for row in events(folder) if row["event"] == "judged"]


@pytest.mark.slow
@pytest.mark.parametrize("results", [1, 4])
def test_killed_search_judges_no_kernel_twice(results: int, tmp_path: Path) -> None:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command(tmp_path), start_new_session=True, **quiet) as search:
        limit = time.monotonic() + 240.0
        while len(judged(tmp_path)) < results:
            assert search.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < limit, "no result in four minutes"
            time.sleep(0.05)
        os.killpg(search.pid, signal.SIGKILL)
    before = judged(tmp_path)
    assert results <= len(before) < BUDGET

    again = subprocess.run(command(tmp_path, "resume=true"), check=True, capture_output=True)
    after = judged(tmp_path)
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == BUDGET, "only the rest of the budget was left"
    assert [row["event"] for row in events(tmp_path)].count("start") == 2
    result = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert result["evaluations"] == BUDGET and result["stopped"] == "budget_builds"
    assert str(tmp_path / "out") in again.stdout.decode()
