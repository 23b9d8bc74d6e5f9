"""Moves on CUDA kernels: what they change is compiled for the processor and compared."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelgym import Kernel
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.moves.table import CUDA_MOVES
from kernelgym_train.mcgs.proposing import Proposal, RuleProposer
from kernelgym_train.mcgs.variant import read_variant, state_key
from support.cuda_on_host import compiled
from support.cuda_texts import CASES, Array, CudaCase, kernel_source

FIRES = {
    "gelu": {"vectorize_global_loads", "change_block_sizes", "cache_policy_cg"},
    "scaled": {"vectorize_global_loads", "change_block_sizes", "cache_policy_cg"},
    "linear": {"register_block", "swap_thread_axes", "change_block_sizes", "unroll"},
    "product": {"register_block", "swap_thread_axes", "change_block_sizes", "unroll"},
    "total": {"avoid_atomics_reduce", "change_block_sizes"},
    "softmax": {"softmax_math_fusion", "unroll", "change_block_sizes"},
}


def rules(name: str) -> RuleProposer:
    start = read_variant(Kernel(kernel_source(CASES[name].text), "cuda"))
    return RuleProposer(start, approximate=True)


def proposals(name: str) -> list[Proposal]:
    """Return each first step, and each second step after a step of a whole kernel."""
    proposer = rules(name)
    start = proposer.space().base
    found = {}
    for move, _ in proposer.priors(start):
        number = 0
        while (made := proposer.propose(start, move, number)) is not None:
            number += 1
            found[state_key(made.variant)] = made
    for first in list(found.values())[:3]:
        for move, _ in proposer.priors(first.variant):
            made = proposer.propose(first.variant, move, 0)
            if made is not None:
                found.setdefault(state_key(made.variant), made)
    return list(found.values())


def called(run: Any, case: CudaCase) -> tuple[Array, Array]:
    """Return what a function computes of random inputs, and what is right."""
    generator = np.random.default_rng(0)
    given = [generator.standard_normal(shape).astype(np.float32) for shape in case.inputs]
    out = np.zeros(case.output, np.float32)
    pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in (*given, out)]
    run(*pointers, *case.numbers)
    return out, case.right(*given)


@pytest.mark.parametrize("name", CASES)
def test_cuda_moves_keep_what_a_kernel_computes(name: str, tmp_path: Path) -> None:
    made = proposals(name)
    texts = list(dict.fromkeys(file_of(each.variant).cpp for each in made))
    for run, text in zip(compiled(texts, tmp_path), texts, strict=True):
        out, right = called(run, CASES[name])
        assert np.allclose(out, right, rtol=1e-4, atol=1e-4), text


@pytest.mark.parametrize("name", CASES)
def test_cuda_moves_of_a_form_are_offered(name: str) -> None:
    proposer = rules(name)
    offered = {move for move, _ in proposer.priors(proposer.space().base)}
    assert offered >= FIRES[name] and offered <= set(CUDA_MOVES)
    assert "register_block" not in offered or "register_block" in FIRES[name]
