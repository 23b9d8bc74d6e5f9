"""Muon for a small model: `torch.optim.Muon`'s update, all matrices of one shape at a time.

Contract: weights come out as torch's would (tests/train/demo/test_muon.py holds them against each
other). Torch takes one matrix after the other, in about twenty small operations each: for matrices
of a hundred by a hundred that was a fifth of the time of a fitting step on a CPU.

Steps, groups and gradients are used as any optimiser's of torch; there is no state to save.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

# Of the quintic Newton-Schulz iteration that Muon was published with, and torch's as well.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS, _LEAST_NORM = 5, 1e-7


class StackedMuon:
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
        params: Iterable[Any],
        lr: float,
        *,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
    ) -> None:
        weights = list(params)
        for weight in weights:
            if weight.ndim != 2:
                raise ValueError(f"Muon is for matrices, got a parameter {list(weight.shape)}")
        self._decay, self._momentum = weight_decay, momentum
        self._moments: dict[Any, Any] = {}  # stacked, by shape
        self.param_groups: list[dict[str, Any]] = [{"params": weights, "lr": lr}]
        """One group, whose learning rate may be changed between steps."""

    def step(self) -> None:
        """Take one step."""
        import torch

        (group,) = self.param_groups
        alike: dict[Any, list[Any]] = {}
        for weight in group["params"]:
            alike.setdefault(weight.shape, []).append(weight)
        with torch.no_grad():
            for shape, weights in alike.items():
                gradient = torch.stack([weight.grad for weight in weights])
                if shape not in self._moments:
                    self._moments[shape] = torch.zeros_like(gradient)
                moment = self._moments[shape].lerp_(gradient, 1 - self._momentum)
                update = orthogonalised(gradient.lerp(moment, self._momentum))
                rate = group["lr"] * math.sqrt(max(1.0, shape[0] / shape[1]))
                torch._foreach_mul_(weights, 1 - group["lr"] * self._decay)
                torch._foreach_add_(weights, update.to(gradient.dtype).unbind(), alpha=-rate)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for weight in self.param_groups[0]["params"]:
            weight.grad = None if set_to_none or weight.grad is None else weight.grad.zero_()


def orthogonalised(matrices: Any) -> Any:
    """Return the nearest orthogonal matrices, roughly: singular values end between 0.5 and 1.5.

    Args:
        matrices: ``[n, rows, columns]``.

    Returns:
        As many in bfloat16, in which the iteration is stable.
    """
    import torch

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
