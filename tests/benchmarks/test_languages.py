"""The comparison of languages has all its kernels, and goes on where it was cut off."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.languages import run as languages
from kernelgym.answers.screening import screen
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel

COMPARED = [name for name, entry in LANGUAGES.items() if "cuda" in entry.timed_on]


@pytest.mark.parametrize("language", COMPARED)
@pytest.mark.parametrize("problem", languages.PROBLEMS)
def test_compared_kernel_is_there_and_without_a_finding(language: str, problem: str) -> None:
    text = languages.kernel_path(problem, language).read_text()
    found = screen(Kernel(text, language), RULESETS["strict"])
    # The problems are in fp16, which screening cannot know.
    assert {finding.code for finding in found} <= {"precision_downgrade"}


def test_run_that_was_cut_off_keeps_what_it_measured(tmp_path: Path) -> None:
    out = tmp_path / "languages.json"
    options = argparse.Namespace(device="cpu", seconds=60.0, out=out)
    run = languages.Run(options)
    assert run.wants("kernels", "triton softmax")
    run.keep("kernels", "triton softmax", {"status": "correct"})
    again = languages.Run(options)
    assert not again.wants("kernels", "triton softmax") and again.wants("kernels", "cuda softmax")
    assert json.loads(out.read_text())["kernels"]["triton softmax"] == {"status": "correct"}
    assert not languages.Run(argparse.Namespace(**{**vars(options), "seconds": -1.0})).wants(
        "a", "b"
    )


def test_language_that_the_device_cannot_run_is_told() -> None:
    assert "does not run on device 'cpu'" in languages.missing("cute", "cpu")
    assert languages.missing("triton", "cpu") == ""


def test_sample_is_in_fp16_for_a_language_without_fp32() -> None:
    assert "half()" in languages.sample_of("tilelang")[0].source
    assert "half()" not in languages.sample_of("triton")[0].source
