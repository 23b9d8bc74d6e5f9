"""Two real GPUs, one of which no worker can use for a while.

The broken GPU is simulated by a `CUDA_VISIBLE_DEVICES` that names no device, so that every CUDA
call of its workers fails.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernelgym.devices import alone
from kernelgym.judge import LocalEvaluator, worker_handle
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import solve
from kernelgym.types import Job, Kernel, Status
from support.gpus import gpu_count

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

BOGUS = {"CUDA_VISIBLE_DEVICES": "GPU-00000000-0000-0000-0000-000000000000"}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Break cuda:0 for all workers that start while the event is set."""
    if gpu_count() < 2:
        pytest.skip("needs two GPUs")
    event = threading.Event()
    event.set()

    def see(device: str, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        own, visible = alone(device, environment)
        return own, BOGUS if device == "cuda:0" and event.is_set() else visible

    monkeypatch.setattr(worker_handle, "alone", see)
    return event


def jobs(first: int, count: int) -> list[Job]:
    problem = get_problem("Synthetic/L1/3")
    kernel = solve(problem, "triton")
    return [
        Job(problem, Kernel(f"{kernel.source}\n# {number}\n", "triton"))
        for number in range(first, first + count)
    ]


def test_gpu_that_fails_costs_no_verdict(broken: threading.Event, tmp_path: Path) -> None:
    with LocalEvaluator(
        devices=["cuda:0", "cuda:1"], workers=2, timing=False, cache_dir=tmp_path
    ) as evaluator:
        verdicts = evaluator.evaluate_many(jobs(0, 40))
        assert {verdict.status for verdict in verdicts} == {Status.CORRECT}
        assert {verdict.device for verdict in verdicts} == {"cuda:1"}
        ill, well = evaluator.status.health
        assert not ill.in_service and ill.taken_out == 1 and ill.moved == ill.lost
        assert well.in_service and not well.lost
        broken.clear()
        for first in range(100, 1100, 20):  # the next probe is due 10 s after one has failed
            evaluator.evaluate_many(jobs(first, 20))
            if evaluator.status.health[0].in_service:
                break
        verdicts = evaluator.evaluate_many(jobs(2000, 40))
    assert {verdict.status for verdict in verdicts} == {Status.CORRECT}
    assert {verdict.device for verdict in verdicts} == {"cuda:0", "cuda:1"}
