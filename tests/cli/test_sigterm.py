"""SIGTERM ends `check --batch`, `eval` and `index build` in order, with exit code 143."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from kernelgym.cli import judging
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Kernel, Problem, Verdict
from support.evals import lines_of


@pytest.fixture
def terminated(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedEvaluator]:
    """Have scripted judges, the first of which sends SIGTERM while it judges its third kernel."""
    made: list[ScriptedEvaluator] = []

    def make(device: str, ruleset: Any, *_: Any) -> ScriptedEvaluator:
        first = not made

        def script(problem: Problem, kernel: Kernel) -> Verdict:
            if first and len(made[0].judged) == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            return verdict("correct", speedup=2.0)

        made.append(ScriptedEvaluator(script, ruleset, device))
        return made[-1]

    monkeypatch.setattr(judging, "make_evaluator", make)
    return made


def test_eval_after_sigterm_goes_on(run: Any, terminated: Any, folder: Path) -> None:
    asked = ("eval", "--policy", "scripted", "--shares", 1, 0, 0, "--suite", "Synthetic")
    asked = (*asked, "--level", 1, "--limit", 6, "--out", folder / "run")
    code, _, err = run(*asked)
    told = f"kernelgym: interrupted; the same command continues {folder / 'run'}\n"
    assert (code, err) == (143, told) and terminated[0].closed
    answers = len(lines_of(folder / "run", "generations"))
    judged = len(lines_of(folder / "run", "verdicts"))
    assert answers and judged < 6
    code, out, _ = run(*asked)
    assert code == 0 and f"({answers} were on disk), {6 - judged} kernels judged" in out


def test_batch_after_sigterm_goes_on(run: Any, terminated: Any, folder: Path) -> None:
    jobs = folder / "jobs.jsonl"
    row = '{{"id": {}, "problem": "problem.py", "kernel": "right.py"}}\n'
    jobs.write_text("".join(map(row.format, range(5))))
    asked = ("check", "--batch", jobs, "--out", "out.jsonl")
    code, _, err = run(*asked)
    assert (code, err) == (143, "kernelgym: interrupted\n")
    kept = (folder / "out.jsonl").read_text().splitlines()
    assert len(kept) < 5
    code, out, _ = run(*asked)
    assert code == 0 and f"judged {5 - len(kept)} jobs" in out


def test_index_build_after_sigterm_leaves_no_half_of_it(
    run: Any, terminated: Any, folder: Path
) -> None:
    out, kept = folder / "index", folder / "verdicts"
    asked = ("index", "build", "--corpus", "synthetic", "--language", "triton", "--hold-out")
    asked = (*asked, "Synthetic:heldout", "--out", out, "--verdict-cache", kept)
    code, _, err = run(*asked)
    assert (code, err) == (143, "kernelgym: interrupted\n")
    assert not out.exists() and terminated[0].closed
