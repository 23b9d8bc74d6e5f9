"""Muon, all matrices of one shape at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym_train.demo.muon import StackedMuon, orthogonalised

pytestmark = pytest.mark.usefixtures("one_thread")


def weights(shapes: list[tuple[int, int]], seed: int) -> list[torch.nn.Parameter]:
    drawn = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=drawn)) for shape in shapes]


@given(
    st.lists(st.sampled_from([(8, 8), (16, 8), (8, 16)]), min_size=1, max_size=6),
    st.integers(0, 99),
)
@settings(max_examples=20)
def test_weights_come_out_as_torchs(shapes: list[tuple[int, int]], seed: int) -> None:
    """Over several steps with changing rates: up to what bfloat16 may round otherwise."""
    ours, theirs = weights(shapes, seed), weights(shapes, seed)
    stacked = StackedMuon(ours, 0.1, weight_decay=0.05)
    reference = torch.optim.Muon(theirs, 0.1, weight_decay=0.05)
    for step in range(4):
        gradients = weights(shapes, seed + 100 + step)
        for weight, gradient in zip([*ours, *theirs], gradients * 2, strict=True):
            weight.grad = gradient.detach().clone()
        for optimiser in (stacked, reference):
            optimiser.param_groups[0]["lr"] = 0.1 / (step + 1)
            optimiser.step()
        for mine, wanted in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, wanted, rtol=0, atol=4e-3)
    assert any((a - b).abs().max() > 0.01 for a, b in zip(ours, weights(shapes, seed), strict=True))


def test_a_step_is_along_an_orthogonal_matrix_whatever_the_gradients_size() -> None:
    matrices = torch.stack([scale * torch.randn(24, 12) for scale in (1e-3, 1.0, 1e3)])
    values = torch.linalg.svdvals(orthogonalised(matrices).float())
    assert 0.4 < values.min() < values.max() < 1.6


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_are_forgotten(to_none: bool) -> None:
    (weight,) = ours = weights([(4, 4)], 0)
    weight.grad = torch.ones(4, 4)
    StackedMuon(ours, 0.1).zero_grad(set_to_none=to_none)
    assert weight.grad is None if to_none else not weight.grad.any()


def test_only_matrices_are_taken() -> None:
    with pytest.raises(ValueError, match=r"got a parameter \[3\]"):
        StackedMuon([torch.nn.Parameter(torch.zeros(3))], 0.1)
