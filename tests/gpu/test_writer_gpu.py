"""A writer of Triton kernels on a GPU: exploits that are refused, and a change that gains."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym import Kernel, LocalEvaluator
from kernelgym_train.mcgs import Budget, SearchConfig, optimize
from kernelgym_train.mcgs.writing.writer import KernelWriter
from support.offered import Offered, offer
from support.triton_kernels import TRITON_KERNELS
from support.writers import WholePolicy

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.mark.parametrize("name", ["softmax", "matmul"])
def test_exploits_of_a_writer_are_not_promoted_on_a_gpu(name: str, tmp_path: Path) -> None:
    with LocalEvaluator("cuda:0", workers=4) as evaluator:
        outcomes = offer(Offered("triton", "cuda"), name, evaluator, tmp_path, workers=4)
    print(name, outcomes)
    assert outcomes["proposed"] >= 10


def test_written_triton_kernel_gains_and_its_knob_is_tuned(tmp_path: Path) -> None:
    """The textbook matmul with larger tiles, whose depth is marked as a knob."""
    problem, start = TRITON_KERNELS["matmul"]
    source = start.source.replace(
        "BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, num_warps=1, num_stages=1",
        "BLOCK_M=64, BLOCK_N=64, BLOCK_K=DEPTH, num_warps=4, num_stages=3",
    ).replace("class ModelNew", "DEPTH = 16  # knob: 16, 32\n\n\nclass ModelNew")
    assert source != start.source
    with (
        LocalEvaluator("cuda:0", workers=2) as evaluator,
        KernelWriter(WholePolicy([Kernel(source, "triton")])) as writer,
    ):
        config = SearchConfig(Budget(6), writer=writer, moves=("cache_policy_cg",))
        result = optimize(problem, start, evaluator, tmp_path, config)
    print("matmul", result["speedup"], result["best"]["moves"])
    assert result["speedup"] > 1.0
    assert result["best"]["moves"][0][0].startswith("written:")
