"""Which problem an episode is of: drawn by a seed, or named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.errors import UnknownName, UsageError
from kernelgym.suites import suite
from kernelgym.testing import SAMPLE_KERNELS, ScriptedEvaluator, reply

ANSWER = reply(SAMPLE_KERNELS["triton"])


@pytest.fixture
def bench(kernelbench_checkout: Path) -> KernelEnv:
    found = suite("KernelBench", root=str(kernelbench_checkout))
    return KernelEnv(found, 2, evaluator=ScriptedEvaluator())


def test_same_seed_same_problem(bench: KernelEnv) -> None:
    ids = [bench.reset(seed=seed)[1]["problem_id"] for seed in range(30)]
    assert ids == [bench.reset(seed=seed)[1]["problem_id"] for seed in range(30)]
    assert len(set(ids)) == 2
    bench.reset(seed=7)
    stream = [bench.reset()[1]["problem_id"] for _ in range(30)]
    bench.reset(seed=7)
    assert stream == [bench.reset()[1]["problem_id"] for _ in range(30)]
    assert len(set(stream)) == 2


@pytest.mark.parametrize("given", ["KernelBench/L2/10", "L2/10", "10_AddTen", "10", 10])
def test_problem_by_id(bench: KernelEnv, given: str | int) -> None:
    _, info = bench.reset(options={"problem_id": given})
    assert (info["problem_id"], info["level"]) == ("KernelBench/L2/10", 2)


def test_a_full_id_may_leave_the_level(bench: KernelEnv, kernelbench_checkout: Path) -> None:
    _, info = bench.reset(options={"problem_id": "KernelBench/L1/1"})
    assert info["problem_id"] == "KernelBench/L1/1"
    found = suite("KernelBench", root=str(kernelbench_checkout))
    narrow = KernelEnv(found, 2, problems="1", evaluator=ScriptedEvaluator())
    for outside in ("KernelBench/L1/1", "KernelBench/L2/10", 10):
        with pytest.raises(UnknownName, match="KernelBench/L2/1"):
            narrow.reset(options={"problem_id": outside})


def test_synthetic_problems_suit_the_device() -> None:
    env = KernelEnv("Synthetic", 2, evaluator=ScriptedEvaluator())
    for wanted in (5000, "5000", "L2/5000"):
        _, info = env.reset(options={"problem_id": wanted})
        assert info["problem_id"].startswith("Synthetic/L2/5000") and info["level"] == 2
    with pytest.raises(UnknownName):
        env.reset(options={"problem_id": "L2/x"})
    gpu = KernelEnv("Synthetic", 2, evaluator=ScriptedEvaluator(device="cuda:0"))
    assert gpu.problems[0].id != env.problems[0].id and "gpu" in gpu.problems[0].id


@pytest.mark.parametrize("given", ["L2/99", 99, "", "9-1", "KernelBench/L2/99", "softmax"])
def test_unknown_problems(bench: KernelEnv, given: str | int) -> None:
    with pytest.raises(UnknownName, match="KernelBench/L2/1"):
        bench.reset(options={"problem_id": given})


@pytest.mark.parametrize("given", [1.5, True, ["L2/1"]])
def test_problem_ids_of_the_wrong_type(bench: KernelEnv, given: Any) -> None:
    with pytest.raises(UsageError, match="problem_id"):
        bench.reset(options={"problem_id": given})


def test_a_sibling_plays_on_its_own(bench: KernelEnv) -> None:
    bench.reset(seed=7)
    expected = [bench.reset()[1]["problem_id"] for _ in range(20)]
    bench.reset(seed=7)
    twin = bench.sibling()
    with pytest.raises(ResetNeeded):
        twin.step(ANSWER)
    twin.reset(seed=3)
    twin.step(ANSWER)
    assert twin.evaluator is bench.evaluator and twin.problems == bench.problems
    assert bench.step("none")[4]["turn"] == 1
    assert [bench.reset()[1]["problem_id"] for _ in range(20)] == expected
