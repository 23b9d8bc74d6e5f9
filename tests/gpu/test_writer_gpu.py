"""A writer of Triton kernels on a GPU: exploits that are refused, and a change that gains."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym import Kernel, LocalEvaluator, Problem
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
    """A softmax by blocks of 128, whose block becomes a knob."""
    small, kernel = TRITON_KERNELS["softmax"]
    large = small.source.replace("torch.randn(5, 333)", "torch.randn(8192, 4096)")
    assert large != small.source
    problem = Problem("test/softmax", "test", 0, "softmax", large, "softmax")
    source = kernel.source.replace("BLOCK=128", "BLOCK=COLUMNS").replace(
        "class ModelNew", "COLUMNS = 1024  # knob: 1024, 2048, 4096\n\n\nclass ModelNew"
    )
    with (
        LocalEvaluator("cuda:0", workers=2) as evaluator,
        KernelWriter(WholePolicy([Kernel(source, "triton")])) as writer,
    ):
        config = SearchConfig(Budget(6), writer=writer, moves=("cache_policy_cg",))
        result = optimize(problem, kernel, evaluator, tmp_path, config)
    print("softmax", result["speedup"], result["best"]["moves"])
    assert result["speedup_low"] > 1.2
    assert result["best"]["moves"][0][0].startswith("written:")
