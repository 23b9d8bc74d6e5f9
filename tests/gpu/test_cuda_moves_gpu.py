"""Moves on CUDA kernels, built by nvcc and judged on a GPU, and a bare ``__global__`` function."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym import LocalEvaluator, suite
from kernelgym.types import Job, Status
from kernelgym_train.mcgs import Budget, SearchConfig
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.task import task_of_spec
from kernelgym_train.mcgs.variant import read_variant

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SPEC = Path(__file__).parents[2] / "examples" / "cuda_matmul.json"


def test_first_step_of_each_cuda_move_is_correct_on_a_gpu() -> None:
    own = suite(str(SPEC))
    problem = own.problems()[-1]  # odd sizes
    proposer = RuleProposer(read_variant(own.kernel))
    start = proposer.space().base
    made = {move: proposer.propose(start, move, 0) for move, _ in proposer.priors(start)}
    assert {"register_block", "swap_thread_axes", "change_block_sizes", "unroll"} <= set(made)
    kernels = [own.kernel, *(each.variant.kernel() for each in made.values() if each is not None)]
    with LocalEvaluator("cuda:0", timing=False, workers=4) as evaluator:
        found = evaluator.evaluate_many([Job(problem, kernel) for kernel in kernels])
    for name, verdict in zip(["start", *made], found, strict=True):
        print(name, verdict.status, verdict.message)
    assert {verdict.status for verdict in found} == {Status.CORRECT}


def test_search_of_a_bare_global_function_gains_on_a_gpu(tmp_path: Path) -> None:
    config = SearchConfig(Budget(3, patience=0), moves=("register_block",), say=print)
    with LocalEvaluator("cuda:0", workers=3) as evaluator:
        result = search(task_of_spec(SPEC), evaluator, tmp_path, config)
    print(result["speedup"], result["speedup_low"], result["over_reference"])
    assert result["speedup_low"] > 1.5
    assert result["best"]["moves"][0][0] == "register_block"
