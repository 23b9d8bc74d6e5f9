"""Measurements in processes of their own: times, failures, deadlines."""

from __future__ import annotations

import dataclasses
import os
import time

import pytest

from kernelgym.judge import LocalEvaluator
from kernelgym.judge.measuring.process import (
    measure_device,
    measure_reference,
    prepared_baselines,
)
from kernelgym.reference_time import TimeSetting
from kernelgym.rulesets import precise_rules
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.types import Problem

EAGER = TimeSetting("eager")


def with_forward(body: str) -> Problem:
    source = (
        "import os, subprocess, socket, time, torch\n"
        "class Model(torch.nn.Module):\n"
        f"    def forward(self, x):\n        {body}\n"
        "def get_inputs():\n    return [torch.ones(8)]\n"
        "def get_init_inputs():\n    return []\n"
    )
    return dataclasses.replace(SAMPLE_PROBLEM, source=source)


def test_an_eager_reference_is_timed() -> None:
    body = "time.sleep(0.01); return x.reshape(2, 4) @ x.reshape(4, 2)"
    found = measure_reference(with_forward(body), EAGER, "cpu", trials=5)
    assert found.measured and found.trials == 5, found.message
    assert 10.0 <= found.min <= found.median <= found.max and found.compile_s == 0.0
    assert found.operations == 2 * 2 * 4 * 2


@pytest.mark.slow
def test_compiling_is_told_apart_from_the_times() -> None:
    found = measure_reference(SAMPLE_PROBLEM, TimeSetting("default"), "cpu", trials=5)
    assert found.measured and found.compile_s > 0.0, found.message


@pytest.mark.slow
def test_compiled_code_that_differs_has_no_time() -> None:
    differs = with_forward("return x + float(torch.compiler.is_compiling())")
    found = measure_reference(differs, TimeSetting("default"), "cpu", trials=3)
    assert not found.measured and "computes something else than eager" in found.message


def test_a_failing_reference_says_why() -> None:
    found = measure_reference(with_forward("raise ValueError('no way')"), EAGER, "cpu")
    assert not found.measured and found.message == "ValueError: no way"


@pytest.mark.slow
def test_a_reference_has_no_network() -> None:
    found = measure_reference(with_forward("socket.socket(); return x"), EAGER, "cpu", trials=3)
    assert "PermissionError" in found.message


def test_one_that_ends_its_process_says_so() -> None:
    found = measure_reference(with_forward("os._exit(3)"), EAGER, "cpu")
    assert found.message == "its process ended with code 3"


@pytest.mark.slow
def test_a_deadline_ends_it_with_all_it_started(tmp_path) -> None:
    mark = tmp_path / "pid"
    body = f"p = subprocess.Popen(['sleep', '100']); open({str(mark)!r}, 'w').write(str(p.pid)); "
    hangs = with_forward(body + "time.sleep(100)")
    found = measure_reference(hangs, EAGER, "cpu", timeout_s=20.0)
    assert found.message == "not done after 20 s"
    pid = int(mark.read_text())
    for _ in range(100):
        if not os.path.exists(f"/proc/{pid}") or b"Z" in _state(pid):
            return
        time.sleep(0.05)
    raise AssertionError("the child still runs")


def _state(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2][:3]
    except OSError:
        return b"Z"


@pytest.mark.slow
def test_prepared_baselines_are_found(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path))
    rules = precise_rules("strict", "", "best")
    other = with_forward("return x")
    with LocalEvaluator("cpu", rules, cache_dir=tmp_path) as evaluator:
        assert evaluator.prepare_baseline(SAMPLE_PROBLEM).prepared
    found = prepared_baselines([SAMPLE_PROBLEM, dataclasses.replace(other, id="B")], rules, "cpu")
    assert found == {SAMPLE_PROBLEM.id}
    narrow = precise_rules("strict", "bf16", "best")
    assert prepared_baselines([SAMPLE_PROBLEM], narrow, "cpu") == frozenset()


def test_beyond_the_memory_budget_nothing_runs() -> None:
    large = dataclasses.replace(
        SAMPLE_PROBLEM, id="KernelBench/L1/19", suite="KernelBench", level=1, name="19_ReLU"
    )
    found = measure_reference(large, EAGER, "cpu", memory_bytes=1)
    assert found.trials == 0 and found.message


@pytest.mark.slow
def test_a_device_is_measured() -> None:
    found = measure_device("cpu")
    assert found["copy_gb_s"] > 0 and found["matmul_tflops"]["fp32"] > 0
