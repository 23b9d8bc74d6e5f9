"""Muon for a small model: `torch.optim.Muon`'s update, all matrices of one shape at a time.

Contract: weights come out as torch's would (tests/train/demo/test_muon.py holds them against each
other). Torch takes one matrix after the other, in about twenty small operations each: for matrices
of a hundred by a hundred that was a fifth of the time of a fitting step on a CPU.

Importing it imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

__all__ = ["StackedMuon", "orthogonalised"]

# Of the quintic Newton-Schulz iteration that Muon was published with, and torch's as well.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS, _LEAST_NORM = 5, 1e-7


class StackedMuon(torch.optim.Optimizer):  # type: ignore[misc]
    """Momentum, orthogonalised, for matrices, with Nesterov's look ahead.

    Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks". Weight decay is
    decoupled.

    Args:
        params: Matrices, all of which get a gradient before every step.
        lr: Learning rate; times the root of rows over columns for a matrix with more rows.
        weight_decay: Part of a weight that is taken away in a step, in learning rates.
        momentum: Part of the momentum that a step keeps.

    Raises:
        ValueError: If a parameter is not a matrix.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        *,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.ndim != 2:
                    raise ValueError(f"Muon is for matrices, got a parameter {list(weight.shape)}")

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: None = None) -> None:
        """Take one step; there is no closure to call."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[torch.nn.Parameter]] = {}
            for weight in group["params"]:
                alike.setdefault(weight.shape, []).append(weight)
            for shape, weights in alike.items():
                gradient = torch.stack([weight.grad for weight in weights])
                state = self.state[weights[0]]
                if not state:
                    state["momentum"] = torch.zeros_like(gradient)
                momentum = state["momentum"].lerp_(gradient, 1 - group["momentum"])
                ahead = gradient.lerp_(momentum, group["momentum"])
                rate = group["lr"] * math.sqrt(max(1.0, shape[0] / shape[1]))
                torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
                update = orthogonalised(ahead).to(gradient.dtype)
                torch._foreach_add_(weights, update.unbind(), alpha=-rate)


def orthogonalised(matrices: torch.Tensor) -> torch.Tensor:
    """Return the nearest orthogonal matrices, roughly: singular values end between 0.5 and 1.5.

    Args:
        matrices: ``[n, rows, columns]``.

    Returns:
        As many in bfloat16, in which the iteration is stable.
    """
    found = matrices.bfloat16()
    upright = found.size(-2) > found.size(-1)
    found = found.mT if upright else found
    found = found / found.norm(dim=(-2, -1), keepdim=True).clamp(min=_LEAST_NORM)
    for _ in range(_ITERATIONS):
        gram = found @ found.mT
        found = torch.baddbmm(
            found, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), found, beta=_A
        )
    return found.mT if upright else found
