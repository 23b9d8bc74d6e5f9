"""Moves on Triton kernels, compiled and run on a GPU, and a whole search there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym import LocalEvaluator
from kernelgym_train.mcgs import Budget, SearchConfig
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.task import task_of
from kernelgym_train.mcgs.triton.limits import fits
from kernelgym_train.mcgs.triton.module import read_module
from kernelgym_train.mcgs.variant import read_variant
from support.triton_kernels import TRITON_KERNELS, wrong_ones

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.mark.parametrize("name", TRITON_KERNELS)
def test_triton_moves_keep_results_on_a_gpu(name: str, tmp_path: Path) -> None:
    start = read_variant(TRITON_KERNELS[name][1])
    proposer = RuleProposer(start)
    texts = []
    for move, _ in proposer.priors(start):
        number = 0
        while (made := proposer.propose(start, move, number)) is not None:
            number += 1
            if fits(read_module(made.variant.source), item_bytes=4):
                texts.append(made.variant.source)
    if name == "naive_matmul":
        # On a GPU Triton itself makes a product of tf32 of a sum of products of broadcast blocks,
        # in the start as well: only what a move made `tl.dot` of is a product of floats.
        texts = [text for text in texts if "tl.dot" in text]
        assert texts
    assert not (wrong := wrong_ones(name, texts, tmp_path, "cuda")), wrong


def test_search_of_a_triton_kernel_on_a_gpu_ends_with_a_checked_best(tmp_path: Path) -> None:
    task = task_of(*TRITON_KERNELS["softmax"], "softmax")
    with LocalEvaluator("cuda:0", workers=2) as evaluator:
        result = search(task, evaluator, tmp_path, SearchConfig(budget=Budget(builds=6)))
    assert result["evaluations"] == 6 and result["best"]["seed"]
    assert (tmp_path / "kernels" / "softmax" / "best" / "kernel_module.py").exists()
