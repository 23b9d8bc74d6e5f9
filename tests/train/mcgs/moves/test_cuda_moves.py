"""Moves on CUDA kernels: what they change is compiled for the processor and compared."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from kernelgym import Kernel
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.moves.table import OWN_MOVES
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
    "norm": {"share_rows", "unroll", "change_block_sizes"},
    "softmax": {"share_rows", "softmax_math_fusion", "unroll", "change_block_sizes"},
}


def rules(name: str) -> RuleProposer:
    start = read_variant(Kernel(kernel_source(CASES[name].text), "cuda"))
    return RuleProposer(start, approximate=True)


def proposals(name: str) -> list[Proposal]:
    """Return two ways of each first step, and second steps after those of a whole kernel."""
    proposer = rules(name)
    start = proposer.space().base
    found = {}
    for move, _ in proposer.priors(start):
        for number in range(2):
            made = proposer.propose(start, move, number)
            if made is not None:
                found[state_key(made.variant)] = made
    for first in list(found.values())[:2]:
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


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, Any]]]:
    """Return text and function of each variant by case; all are compiled at once."""
    texts = [
        (name, text)
        for name in CASES
        for text in dict.fromkeys(file_of(each.variant).cpp for each in proposals(name))
    ]
    functions = compiled([text for _, text in texts], tmp_path_factory.mktemp("cuda"))
    found: dict[str, list[tuple[str, Any]]] = {name: [] for name in CASES}
    for (name, text), run in zip(texts, functions, strict=True):
        found[name].append((text, run))
    return found


@pytest.mark.parametrize("name", CASES)
def test_cuda_moves_keep_what_a_kernel_computes(
    name: str, runs: dict[str, list[tuple[str, Any]]]
) -> None:
    assert len(runs[name]) >= len(FIRES[name])
    for text, run in runs[name]:
        out, right = called(run, CASES[name])
        assert np.allclose(out, right, rtol=1e-4, atol=1e-4), text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("float total = 0.0f", "float total = 1.0f"),  # would be added by each lane
        ("total = total + v * v", "total = total * 0.5f + v"),
        ("total = total + v * v", "total += v * total"),
        ("const float v = x[row * cols + c];", "const float v = x[row * cols + c] + total;"),
        ("const float scale", "__syncthreads(); const float scale"),
        ("++c) y[row", "c += 2) y[row"),
        (
            "const float scale",
            "total = total + 1.0f; for (int c = 0; c < cols; ++c) total += w[c]; const float scale",
        ),
        ("* scale * w[c];", "* scale * w[c] + (c ? y[row * cols + c - 1] : 0.0f);"),
        ("y[row * cols + c] =", "y[row] +="),  # each lane would change one element
        ("y[row * cols + c] =", "y[row * cols + c / 2] ="),
        ("const float scale", "w[row] = total; total = total + w[row]; const float scale"),
    ],
)
def test_rows_of_another_form_are_not_shared(before: str, after: str) -> None:
    text = CASES["norm"].text
    assert before in text
    start = read_variant(Kernel(kernel_source(text.replace(before, after)), "cuda"))
    moves = [move for move, _ in RuleProposer(start).priors(start)]
    assert "share_rows" not in moves


def test_kernel_that_ends_with_a_barrier_is_read() -> None:
    text = CASES["gelu"].text
    end = text.index("}", text.index("__global__"))
    for barrier in ("__syncthreads();", "__syncwarp();"):
        start = read_variant(Kernel(kernel_source(f"{text[:end]}{barrier}{text[end:]}"), "cuda"))
        moves = [move for move, _ in RuleProposer(start).priors(start)]
        assert moves and "avoid_atomics_reduce" not in moves


def test_product_whose_text_names_what_a_tile_names_is_left_alone() -> None:
    text = f"#define THREADS 16\n{CASES['product'].text}"
    start = read_variant(Kernel(kernel_source(text), "cuda"))
    assert "register_block" not in [move for move, _ in RuleProposer(start).priors(start)]


def test_pointers_to_one_array_are_not_restricted() -> None:
    text = CASES["gelu"].text.replace(">>>(x, y, n)", ">>>(y, y, n)")
    start = read_variant(Kernel(kernel_source(text), "cuda"))
    proposer = RuleProposer(start, moves=["cache_policy_cg"])
    made = proposer.propose(start, "cache_policy_cg", 0)
    assert made is not None and made.step.choice == "__stcs"


def test_threads_of_a_kernel_that_names_their_number_stay() -> None:
    text = CASES["scaled"].text.replace("<<<blocks, BLOCK>>>", "<<<blocks, 64>>>")
    start = read_variant(Kernel(kernel_source(text), "cuda"))
    moves = [move for move, _ in RuleProposer(start).priors(start)]
    assert "change_block_sizes" not in moves


@pytest.mark.parametrize("name", CASES)
def test_cuda_moves_of_a_form_are_offered(name: str) -> None:
    proposer = rules(name)
    offered = {move for move, _ in proposer.priors(proposer.space().base)}
    assert offered >= FIRES[name] and offered <= set(OWN_MOVES["cuda"])
    for move in ("register_block", "share_rows", "avoid_atomics_reduce"):
        assert (move in offered) is (move in FIRES[name])
