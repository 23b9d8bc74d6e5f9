"""A busy host blames no kernel: honest ones beside spinning programs are correct, or unjudged."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgym.cli.redteam import judge_entries, load_corpus
from kernelgym.judge import LocalEvaluator
from kernelgym.redteam.corpus import sample, select
from kernelgym.rulesets import RULESETS, Limits
from kernelgym.types import Status

pytestmark = pytest.mark.slow

ENTRIES, PROBLEMS = load_corpus(Path(__file__).parent)
HONEST = [entry for entry in sample(select(ENTRIES, "cpu")) if entry.kind == "honest"][3::20]


@pytest.fixture
def spinning():
    """Start two spinning processes a processor, and end them."""
    count = 2 * len(os.sched_getaffinity(0))
    command = [sys.executable, "-S", "-c", "while True: pass"]
    programs = [subprocess.Popen(command) for _ in range(count)]
    yield
    for program in programs:
        program.kill()
        program.wait()


def test_honest_kernels_beside_spinning_programs_are_correct_or_unavailable(spinning, tmp_path):
    # Limits that most builds and runs meet on a quiet host and would overrun beside the programs.
    limits = Limits(build_s=25.0, triton_build_s=25.0, run_s=10.0)
    rules = dataclasses.replace(RULESETS["strict"], limits=limits)
    with LocalEvaluator("cpu", rules, workers=2, cache_dir=tmp_path, timing=False) as evaluator:
        verdicts = {
            outcome.entry.name: outcome.verdict
            for _, outcome in judge_entries(evaluator, HONEST, PROBLEMS)
        }
    fair = (Status.CORRECT, Status.UNAVAILABLE)
    blamed = {
        name: f"{verdict.status.value}: {verdict.message}"
        for name, verdict in verdicts.items()
        if verdict.status not in fair
    }
    assert verdicts and not blamed
