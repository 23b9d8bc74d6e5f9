"""The process that runs KernelBench's evaluation, with a stand-in for KernelBench and torch."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

# Benchmarks are scripts, not a package.
from benchmarks.conformance.cases import FAILED, NOT_COMPILED, PASSED, Case
from benchmarks.conformance.sides import Server
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.types import Kernel

TORCH = """
import types

__version__ = "0"
BROKEN = []


def device(name):
    return name


def synchronize(place):
    if BROKEN:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


cuda = types.SimpleNamespace(
    set_device=lambda place: None,
    get_device_name=lambda place: "a stand-in",
    empty_cache=lambda: None,
    synchronize=synchronize,
)
"""

# What a "kernel" says is what becomes of it.
EVALUATION = """
import os
import sys
import time
import types

import litellm  # there or stood in for, as in KernelBench
import torch


def eval_kernel_against_ref(original_model_src, custom_model_src, num_correct_trials,
                            measure_performance, device, backend):
    assert num_correct_trials == 5 and not measure_performance and backend == "triton"
    print("chatter on the standard output")
    words = custom_model_src.split()
    match words[0]:
        case "raise":
            raise TypeError("no such argument")
        case "break":
            torch.BROKEN.append(True)
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        case "exit":
            sys.exit(0)
        case "abort":
            os._exit(9)
        case "hang":
            time.sleep(60)
        case "none":
            return None
    metadata = {"runtime_error": "x", "runtime_error_name": "y"} if words[0] == "fail" else {}
    return types.SimpleNamespace(compiled=True, correctness=words[0] == "pass", metadata=metadata)
"""


def case(word: str) -> Case:
    return Case(word, "KernelBench/L1/1", Kernel(word, "triton"), "either", limit_s=20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    source = tmp_path / "src"
    (source / "kernelbench").mkdir(parents=True)
    (source / "kernelbench" / "__init__.py").write_text("")
    (source / "kernelbench" / "eval.py").write_text(textwrap.dedent(EVALUATION))
    (source / "torch.py").write_text(TORCH)
    made = Server(tmp_path, "cuda:0", tmp_path / "caches", tmp_path / "log")
    yield made
    made.close()


def said(server: Server, word: str) -> tuple[object, str]:
    outcome = server.evaluate(case(word), SAMPLE_PROBLEM)
    return outcome.pair, outcome.reason


def test_one_process_serves_as_long_as_nothing_breaks(server: Server) -> None:
    assert said(server, "pass") == (PASSED, "")
    assert said(server, "fail") == (FAILED, "runtime_error")
    assert said(server, "raise") == (NOT_COMPILED, "other_error")
    assert said(server, "none") == (None, "retry")
    assert server.starts == 1
    assert server.hello["hardware"] == "a stand-in"


def test_an_end_or_a_broken_context_costs_the_process_and_no_further_case(
    server: Server,
) -> None:
    for number, (word, reason) in enumerate(
        (("exit", "timeout"), ("abort", "timeout"), ("break", "cuda_error")), start=1
    ):
        assert said(server, word) == (NOT_COMPILED, reason)
        assert server.starts == number
        assert said(server, "pass") == (PASSED, "")


def test_a_case_that_hangs_is_ended_at_its_limit(server: Server) -> None:
    said(server, "pass")
    hanging = Case("hang", "KernelBench/L1/1", Kernel("hang", "triton"), "timeout", limit_s=0.3)
    outcome = server.evaluate(hanging, SAMPLE_PROBLEM)
    assert (outcome.pair, outcome.reason) == (NOT_COMPILED, "timeout")
    assert outcome.wall_s < 20
    assert said(server, "pass") == (PASSED, "")


@pytest.mark.slow
def test_an_evaluation_that_does_not_start_says_where_to_look(tmp_path: Path) -> None:
    empty = Server(tmp_path, "cuda:0", tmp_path, tmp_path / "log")
    with pytest.raises(RuntimeError, match="did not start; see"):
        empty.evaluate(case("pass"), SAMPLE_PROBLEM)
    assert "No module named 'kernelbench'" in (tmp_path / "log").read_text()
