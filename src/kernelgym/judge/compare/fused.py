"""Comparisons of large tensors on a CUDA device in one pass each, as Triton kernels of ours.

`bounds` does the same arithmetic operation by operation, which moves every number a dozen times.
What is found here is only ever "certainly right": an element within a millionth of its bound, a
NaN, an infinity, a reference that is far from its twin, all make the answer None, and the caller
goes through the tensors slowly. So no verdict rests on how these kernels round.

Imported where a tensor lies on a CUDA device, in the trusted worker. Decides nothing by itself.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

__all__ = ["Fused", "fused_for", "load"]

_BLOCK = 1024  # larger ones keep more sums in registers than let enough programs run at once
_STEPS = 32
_LEAST = 4096  # elements of a tensor that a pass is worth launching for
_SURE = 1.0 - 1e-6


class Fused:
    """The kernels, compiled at their first use.

    Args:
        kernels: The module `fused_kernels`.
    """

    def __init__(self, kernels: Any) -> None:
        self._within, self._close, self._errors = kernels.within, kernels.close, kernels.errors

    def within_bound(
        self, output: torch.Tensor, truth: torch.Tensor, slack: torch.Tensor, relative: float
    ) -> tuple[float, float] | None:
        """Return the largest error and the largest relative to `slack`'s typical magnitude.

        Args:
            output: Flat, floating-point.
            truth: Flat, as many elements.
            slack: fp64, by exponent of the truth; its last element is the magnitude below which
                relative errors are not told.
            relative: What the bound grows by with the truth's magnitude.

        Returns:
            None unless every element is certainly inside the bound.
        """
        count = output.numel()
        programs = _cdiv(count, _BLOCK * _STEPS)
        found = torch.empty(3, programs, dtype=torch.float64, device=output.device)
        self._within[(programs,)](
            output, truth, slack, found, count, programs, relative * _SURE, _SURE, _BLOCK, _STEPS
        )
        worst = found.amax(1).tolist()
        return None if worst[0] else (worst[1], worst[2])

    def within_fixed(
        self, output: torch.Tensor, reference: torch.Tensor, atol: float, rtol: float
    ) -> tuple[float, float] | None:
        """Return the largest error, absolute and relative, of an output that is certainly close.

        Args:
            output: Flat, floating-point.
            reference: Flat, as many elements of the same type.
            atol: Absolute tolerance.
            rtol: Tolerance relative to the output, as `torch.allclose` has it.
        """
        count = output.numel()
        programs = _cdiv(count, _BLOCK * _STEPS)
        found = torch.empty(3, programs, dtype=torch.float64, device=output.device)
        self._close[(programs,)](
            output, reference, found, count, programs, atol * _SURE, rtol * _SURE, _BLOCK, _STEPS
        )
        worst = found.amax(1).tolist()
        return None if worst[0] else (worst[1], worst[2])

    def own_errors(
        self,
        reference: torch.Tensor,
        truth: torch.Tensor,
        errors: torch.Tensor,
        counts: torch.Tensor,
        typical: float,
        distrust: float,
    ) -> bool:
        """Add the reference's errors to tables by exponent of the truth.

        Args:
            reference: Flat, floating-point.
            truth: Flat, fp64, as many elements.
            errors: int64: bits of the largest error as fp64, by exponent; raised in place.
            counts: int64: elements by exponent; added to in place.
            typical: See `bounds`.
            distrust: Share of the magnitude above which a twin is not believed.

        Returns:
            False if something is not finite or not believed; then the tables are of no use.
        """
        count = reference.numel()
        strange = torch.zeros(1, dtype=torch.int64, device=reference.device)
        self._errors[(_cdiv(count, _BLOCK),)](
            reference, truth, errors, counts, strange, count, typical, distrust, _BLOCK
        )
        return not bool(strange.item())


@cache
def load() -> Fused | None:
    """Return the kernels, or None where Triton is not installed."""
    try:
        from kernelgym.judge.compare import fused_kernels
    except ImportError:
        return None
    return Fused(fused_kernels)


def _cdiv(count: int, size: int) -> int:
    return -(-count // size)


def fused_for(*tensors: torch.Tensor) -> Fused | None:
    """Return the kernels if they are of use for these flat tensors."""
    if tensors[0].device.type != "cuda" or tensors[0].numel() < _LEAST:
        return None
    if not all(tensor.is_floating_point() and tensor.is_contiguous() for tensor in tensors):
        return None
    return load()
