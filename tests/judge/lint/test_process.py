"""The process of the degeneracy gate: deadlines, deaths, what is kept, and that torch stays out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelgym.hygiene import Hygiene, read_kept, write_kept
from kernelgym.judge.lint import process as process_module
from kernelgym.judge.lint.process import HygieneProcess, lint
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.types import Problem

STRICT, KERNELBENCH = RULESETS["strict"], RULESETS["kernelbench"]


def problem(forward: str, name: str = "own") -> Problem:
    source = f"""\
import os, signal, time
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return []
"""
    return Problem(f"own/{name}", "own", 0, name, source)


@pytest.fixture(scope="module")
def process() -> Iterator[HygieneProcess]:
    made = HygieneProcess(STRICT, "cpu")
    yield made
    made.close()


def test_a_sound_problem(process: HygieneProcess) -> None:
    result = process.examine(SAMPLE_PROBLEM, 120.0)
    assert result == Hygiene(
        SAMPLE_PROBLEM.id, STRICT.label, "own", "cpu", reasons=(), detail="", tested=True
    )


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        pytest.param("os._exit(7)", "exit code 7", marks=pytest.mark.slow),
        pytest.param("raise SystemExit(3)", "SystemExit", marks=pytest.mark.slow),
        ("raise ValueError('not so')", "not so"),
    ],
)
def test_whatever_a_reference_does_is_said(
    process: HygieneProcess, forward: str, says: str
) -> None:
    result = process.examine(problem(forward), 120.0)
    assert result.reasons == ("broken_reference",) and result.tested
    assert says in result.detail
    assert process.examine(SAMPLE_PROBLEM, 120.0).passes  # it serves on


def test_a_killed_reference_is_not_called_broken(process: HygieneProcess) -> None:
    result = process.examine(problem("os.kill(os.getpid(), signal.SIGKILL)"), 120.0)
    assert not result.tested and result.reasons == ()


def test_problems_do_not_share_a_process(process: HygieneProcess) -> None:
    spoil = problem("torch.set_default_dtype(torch.float64); return x + 1")
    process.examine(spoil, 120.0)
    assert process.examine(
        problem("return x + torch.randn(16).cumsum(0)[-1:] * 0 + 1"), 120.0
    ).passes


@pytest.mark.slow
def test_an_overrun_is_killed_and_keeps_what_was_found() -> None:
    # The answers without work are tried in the first six calls, the next one hangs.
    slow = problem("""
        calls = os.environ["CALLS"] = str(int(os.environ.get("CALLS", "0")) + 1)
        if int(calls) > 6:
            time.sleep(600)
        return torch.zeros(4)
        """)
    process = HygieneProcess(KERNELBENCH, "cpu")
    result = process.examine(slow, 8.0)
    assert "zeros" in result.reasons and not result.tested
    assert "not done after 8 s" in result.detail and not process.alive


def test_results_are_kept_and_taken_from_there(
    process: HygieneProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One process for all calls: each costs two CPU seconds.
    monkeypatch.setattr(process_module, "HygieneProcess", lambda *_: process)
    monkeypatch.setattr(process, "close", lambda: None)
    bad = problem("return x * 1.0", "bad")
    folder = tmp_path / "hygiene"
    first = dict(lint([bad, SAMPLE_PROBLEM], STRICT, folder=folder))
    assert first[0].reasons == ("identity",) and first[1].passes
    assert read_kept(folder, bad, STRICT, "cpu") == first[0]
    # What is kept is believed ...
    told = Hygiene(bad.id, STRICT.label, "fp32", "cpu", ("zeros",), "told", tested=True)
    write_kept(folder, bad, STRICT, "cpu", told)
    assert dict(lint([bad], STRICT, folder=folder)) == {0: told}
    # ... until it is asked for anew.
    assert dict(lint([bad], STRICT, folder=folder, refresh=True)) == {0: first[0]}
    assert read_kept(folder, bad, STRICT, "cpu") == first[0]


@pytest.mark.slow
def test_incomplete_results_are_not_kept(tmp_path: Path) -> None:
    results = dict(lint([problem("time.sleep(600)")], KERNELBENCH, timeout_s=2.0, folder=tmp_path))
    assert not results[0].tested and list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_several_workers_and_leaving_early(tmp_path: Path) -> None:
    many = [problem(f"return x * {n}.5", f"p{n}") for n in range(6)]
    results = dict(lint(many, KERNELBENCH, workers=2, folder=tmp_path))
    assert sorted(results) == list(range(6)) and all(r.passes for r in results.values())
    iterator = lint(many, KERNELBENCH, folder=tmp_path, refresh=True)
    next(iterator)
    iterator.close()


def test_the_caller_imports_no_torch() -> None:
    code = (
        "import sys\n"
        "import kernelgym.judge.lint.process, kernelgym.suites.known_hygiene, kernelgym.cli.lint\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
