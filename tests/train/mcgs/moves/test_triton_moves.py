"""Moves on Triton kernels: each variant computes what its start computes, and reads as expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym_train.mcgs.moves.table import TRITON_MOVES
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
    assert fired == set(TRITON_MOVES)


@pytest.mark.parametrize("name", STARTS)
def test_triton_proposals_are_distinct_programs(name: str) -> None:
    start = STARTS[name]
    keys = [state_key(each.variant) for made in proposals(start).values() for each in made]
    assert len(set(keys)) == len(keys) and state_key(start) not in keys
