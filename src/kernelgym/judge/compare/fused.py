"""Compare large tensors on a CUDA device in one pass, by the judge's own Triton kernels.

`error_bound` does the same arithmetic one operation at a time, which moves every number a dozen
times.

Contract: the only positive answer is "certainly right". An element within a millionth of its bound,
a NaN, an infinity, or a reference that is far from its twin makes the answer None, and the caller
then compares the tensors slowly. So no verdict depends on how these kernels round.

The trusted worker uses these kernels for tensors on a CUDA device. This module decides nothing by
itself.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

__all__ = ["FusedComparison", "fused_for", "load"]

_BLOCK = 1024  # larger blocks need so many registers that too few programs run at once
_STEPS = 32
_LEAST = 4096  # elements; for smaller tensors a launch costs more than it saves
_SURE = 1.0 - 1e-6


class FusedComparison:
    """The comparison kernels, compiled at their first use.

    Args:
        kernels: The module `fused_kernels`.
    """

    def __init__(self, kernels: Any) -> None:
        self._within, self._close, self._errors = kernels.within, kernels.close, kernels.errors

    def within_bound(
        self, output: torch.Tensor, truth: torch.Tensor, slack: torch.Tensor, relative: float
    ) -> tuple[float, float] | None:
        """Return the largest absolute and relative error, if all elements are right.

        Args:
            output: Flat, floating-point.
            truth: Flat, as many elements.
            slack: fp64, by exponent of the truth. Relative errors are taken relative to the truth's
                magnitude, but at least to the last element of `slack`.
            relative: How much the bound grows with the truth's magnitude.

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
        """Return the largest absolute and relative error, if all elements are close.

        Args:
            output: Flat, floating-point.
            reference: Flat, as many elements of the same type.
            atol: Absolute error_bound.
            rtol: Tolerance relative to the output, as `torch.allclose` has it.

        Returns:
            None unless every element is certainly inside the tolerances.
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
            typical: Typical magnitude of the truth (see `error_bound.ErrorBound`).
            distrust: Largest error of a believable twin, as a share of the magnitude.

        Returns:
            False if a value is not finite or a twin not believable; the tables are then unusable.
        """
        count = reference.numel()
        strange = torch.zeros(1, dtype=torch.int64, device=reference.device)
        self._errors[(_cdiv(count, _BLOCK),)](
            reference, truth, errors, counts, strange, count, typical, distrust, _BLOCK
        )
        return not bool(strange.item())


@cache
def load() -> FusedComparison | None:
    """Return the kernels, or None where Triton is not installed."""
    try:
        from kernelgym.judge.compare import fused_kernels
    except ImportError:
        return None
    return FusedComparison(fused_kernels)


def _cdiv(count: int, size: int) -> int:
    return -(-count // size)


def fused_for(*tensors: torch.Tensor) -> FusedComparison | None:
    """Return the kernels if they suit these flat tensors, else None.

    They suit large, contiguous floating-point tensors on CUDA.
    """
    if tensors[0].device.type != "cuda" or tensors[0].numel() < _LEAST:
        return None
    if not all(tensor.is_floating_point() and tensor.is_contiguous() for tensor in tensors):
        return None
    return load()
