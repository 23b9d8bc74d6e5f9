"""Moves on Triton kernels: each variant computes what its start computes, and reads as expected."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import libcst as cst
import pytest

from kernelgym_train.mcgs.moves.table import OWN_MOVES
from kernelgym_train.mcgs.proposing import Proposal, RuleProposer
from kernelgym_train.mcgs.triton.limits import fits
from kernelgym_train.mcgs.triton.module import read_module
from kernelgym_train.mcgs.variant import Variant, read_variant, state_key
from support.triton_kernels import TRITON_KERNELS, wrong_ones

STARTS = {name: read_variant(kernel) for name, (_, kernel) in TRITON_KERNELS.items()}


def proposals(start: Variant, *, approximate: bool = False) -> dict[str, list[Proposal]]:
    """Return every proposal on a start by move."""
    proposer = RuleProposer(start, approximate=approximate)
    found: dict[str, list[Proposal]] = {}
    for move, _ in proposer.priors(start):
        while (made := proposer.propose(start, move, len(found.get(move, [])))) is not None:
            found.setdefault(move, []).append(made)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_triton_moves_keep_results(name: str, tmp_path: Path) -> None:
    found = proposals(STARTS[name], approximate=True)
    every = [
        each for made in found.values() for each in made if fits(read_module(each.variant.source))
    ]
    texts = [STARTS[name].source, *(each.variant.source for each in every)]
    wrong = wrong_ones(name, texts, tmp_path)
    told = {text: each.step for text, each in zip(texts[1:], every, strict=True)}
    assert not wrong, "\n".join(f"{told.get(text)}: {why}\n{text}" for text, why in wrong.items())


def test_every_triton_move_is_made_on_some_kernel() -> None:
    fired = {move for start in STARTS.values() for move in proposals(start, approximate=True)}
    assert fired == set(OWN_MOVES["triton"])


@pytest.mark.parametrize("name", STARTS)
def test_triton_proposals_are_distinct_programs(name: str) -> None:
    start = STARTS[name]
    keys = [state_key(each.variant) for made in proposals(start).values() for each in made]
    assert len(set(keys)) == len(keys) and state_key(start) not in keys


class _Trailing(cst.CSTTransformer):
    """Puts a comma and a comment after the last argument of launches, loads and stores."""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        function, args = updated_node.func, updated_node.args
        named = isinstance(function, cst.Attribute) and function.attr.value in ("load", "store")
        if not args or not (named or isinstance(function, cst.Subscript)):
            return updated_node
        comment = cst.TrailingWhitespace(cst.SimpleWhitespace("  "), cst.Comment("# é, last"))
        comma = cst.Comma(whitespace_after=cst.ParenthesizedWhitespace(comment))
        return updated_node.with_changes(args=[*args[:-1], args[-1].with_changes(comma=comma)])


def _with_commas(source: str) -> str:
    return cst.parse_module(source).visit(_Trailing()).code


def _with_tabs(source: str) -> str:
    return re.sub("^(    )+", lambda found: "\t" * (len(found[0]) // 4), source, flags=re.M)


@pytest.mark.parametrize("written", [_with_commas, _with_tabs])
@pytest.mark.parametrize("name", STARTS)
def test_moves_read_other_layouts(name: str, written: Callable[[str], str]) -> None:
    def programs(start: Variant) -> dict[str, set[str]]:
        found = proposals(start, approximate=True)
        return {
            move: {ast.dump(ast.parse(each.variant.source)) for each in made}
            for move, made in found.items()
        }

    start = STARTS[name]
    text = written(start.source)
    assert text != start.source
    assert programs(Variant(text, "triton")) == programs(start)


ONE_LINE = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sums_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = x_ptr + row * n_cols + tl.arange(0, BLOCK)
    end = x_ptr + (row + 1) * n_cols
    total = 0.0
    for start in range(0, n_cols, BLOCK): total += tl.sum(tl.load(at + start, mask=at + start < end))
    peak = -float("inf")
    for start in range(0, n_cols, BLOCK): peak = tl.maximum(peak, tl.max(tl.load(at + start, mask=at + start < end, other=-float("inf"))))
    tl.store(y_ptr + row, total / peak)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        sums_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
        return y
"""  # noqa: E501


def test_loops_of_one_line_keep_their_bodies() -> None:
    made = proposals(Variant(ONE_LINE, "triton"))
    assert "change_block_sizes" in made and "single_pass_row" not in made
    for each in (each for some in made.values() for each in some):
        assert each.variant.source.count("BLOCK): total += tl.sum(") == 1


def test_outer_products_become_a_tile_that_other_moves_set() -> None:
    proposer = RuleProposer(STARTS["outer"])
    made = proposer.propose(STARTS["outer"], "switch_to_mma_or_wgmma", 0)
    assert made is not None and "acc += tl.dot(a, b" in made.variant.source
    tiled = proposer.propose(made.variant, "tensor_core_tile", 0)
    assert tiled is not None and "TILE_K: tl.constexpr = 64" in tiled.variant.source
    assert "triton.cdiv(M, 128), triton.cdiv(N, 128)" in tiled.variant.source


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(K)", "range(1, K)"),
        ("a[:, None] * b[None, :]", "a[:, None] + b[None, :]"),
        ("other=0.0)\n        b", "other=1.0)\n        b"),
        ("BLOCK_M=16, BLOCK_N=16", "BLOCK_M=8, BLOCK_N=8"),
        ("acc += a", "acc -= a"),
    ],
)
def test_other_loops_are_no_outer_products(old: str, new: str) -> None:
    source = STARTS["outer"].source.replace(old, new)
    assert source != STARTS["outer"].source
    start = Variant(source, "triton")
    assert RuleProposer(start).propose(start, "switch_to_mma_or_wgmma", 0) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("triton.cdiv(M, 16)", "M // 16"),
        ("triton.cdiv(M, 16)", "triton.cdiv(M, size)"),
    ],
)
def test_block_size_whose_grid_does_not_follow_is_not_set(old: str, new: str) -> None:
    source = STARTS["outer"].source.replace(old, new)
    assert source != STARTS["outer"].source
    made = proposals(Variant(source, "triton"))["change_block_sizes"]
    assert not [each for each in made if each.step.choice.startswith("BLOCK_M")]
    assert [each for each in made if each.step.choice.startswith("BLOCK_N")]
