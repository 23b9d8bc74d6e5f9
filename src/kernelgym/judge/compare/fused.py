"""Compares large tensors on a CUDA device in one pass, by the judge's own Triton kernels.

`error_bound` does the same arithmetic one operation at a time, which moves every number a dozen
times.

Contract: the only positive answer is "certainly right". An element within a millionth of its bound,
a NaN, an infinity, or a reference that is far from its twin makes the answer None, and the caller
then compares the tensors slowly. So no verdict depends on how these kernels round.

The trusted worker uses these kernels for tensors on a CUDA device. This module decides nothing by
itself.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

_BLOCK = 1024  # larger blocks need so many registers that too few programs run at once
_STEPS = 32
_LEAST = 4096  # elements; for smaller tensors a launch costs more than it saves
_SURE = 1.0 - 1e-6
_SURE_OF_SQUARES = 1.0 - 1e-4
_TOTALS = 512  # places that blocks add to, so that they do not queue for one


class FusedComparison:
    """The comparison kernels, compiled at their first use.

    Args:
        kernels: The module `fused_kernels`.
    """

    def __init__(self, kernels: Any) -> None:
        self._within, self._close, self._errors = kernels.within, kernels.close, kernels.errors

    def within_bound(
        self,
        output: torch.Tensor,
        truth: torch.Tensor,
        slack: torch.Tensor,
        relative: float,
        rms: float,
    ) -> tuple[float, float] | None:
        """Return the largest absolute and relative error, if all elements are right.

        Args:
            output: Flat, floating-point.
            truth: Flat, as many elements.
            slack: fp64, by exponent of the truth. Relative errors are taken relative to the truth's
                magnitude, but at least to the last element of `slack`.
            relative: Growth of the bound with the truth's magnitude.
            rms: Largest root mean square of the errors relative to the truth's magnitude plus the
                last element of `slack`.

        Returns:
            None unless every element, and the root mean square, is certainly inside its bound.
        """
        count = output.numel()
        programs = _cdiv(count, _BLOCK * _STEPS)
        found = torch.empty(4, programs, dtype=torch.float64, device=output.device)
        self._within[(programs,)](
            output, truth, slack, found, count, programs, relative * _SURE, _SURE, _BLOCK, _STEPS
        )
        wrong, absolute, largest = found[:3].amax(1).tolist()
        # The squares are of fp32 numbers and added up in blocks: right to a ten-thousandth.
        coarse = not float(found[3].sum()) <= count * rms * rms * _SURE_OF_SQUARES
        return None if wrong or coarse else (absolute, largest)

    def within_fixed(
        self, output: torch.Tensor, reference: torch.Tensor, atol: float, rtol: float
    ) -> tuple[float, float] | None:
        """Return the largest absolute and relative error, if all are within fixed tolerances.

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
    ) -> float | None:
        """Add the reference's errors to tables by exponent of the truth; return their squares.

        Args:
            reference: Flat, floating-point.
            truth: Flat, fp64, as many elements.
            errors: int64: bits of the largest error as fp64, by exponent; raised in place.
            counts: int64: elements by exponent; added to in place.
            typical: Typical magnitude of the truth (see `error_bound.ErrorBound`).
            distrust: Largest error of a believable twin, as a share of the magnitude.

        Returns:
            The sum of the squares of all errors, relative to the truth's magnitude plus `typical`.
            None if a value is not finite or a twin not believable; the tables are then unusable.
        """
        count = reference.numel()
        totals = torch.zeros(_TOTALS, dtype=torch.float64, device=reference.device)
        self._errors[(_cdiv(count, _BLOCK),)](
            reference, truth, errors, counts, totals, count, typical, distrust, _BLOCK, _TOTALS
        )
        squares = float(totals.sum())
        return squares if math.isfinite(squares) else None


@cache
def load() -> FusedComparison | None:
    """Return the comparison kernels; None if Triton is not installed."""
    try:
        from kernelgym.judge.compare import fused_kernels
    except ImportError:
        return None
    return FusedComparison(fused_kernels)


def _cdiv(count: int, size: int) -> int:
    return -(-count // size)


def fused_for(*tensors: torch.Tensor) -> FusedComparison | None:
    """Return the comparison kernels if they support these flat tensors; None otherwise.

    They suit large, contiguous floating-point tensors on CUDA.
    """
    if tensors[0].device.type != "cuda" or tensors[0].numel() < _LEAST:
        return None
    if not all(tensor.is_floating_point() and tensor.is_contiguous() for tensor in tensors):
        return None
    return load()
