"""Share of an output's elements that are wrong, estimated from a sample. Pure.

Only elements count that take work: neither zero nor infinite, and no copies of the input element at
the same place. So a kernel that writes a few rows of a large cache, or the ones of a one-hot
encoding, is not taken for one that does next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_SAMPLE = 1 << 16
_FEWEST = 256
"""Smallest number of non-trivial elements that a sample must have for an output to be assessed."""
_CLOSE = 1e-5


def wrong_share(
    outputs: Sequence[torch.Tensor], right: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> float:
    """Return the largest share of wrong elements among the outputs; 1 if it is unknown.

    Args:
        outputs: Outputs that a kernel wrote.
        right: The reference's outputs.
        inputs: The inputs of both.
    """
    if not outputs or len(outputs) != len(right):
        return 1.0
    return max(_share(*pair, inputs) for pair in zip(outputs, right, strict=True))


def _share(out: torch.Tensor, ref: torch.Tensor, inputs: Sequence[torch.Tensor]) -> float:
    if out.shape != ref.shape or out.dtype != ref.dtype or not ref.is_floating_point():
        return 1.0
    generator = torch.Generator(device=ref.device).manual_seed(ref.numel())
    places = torch.randint(max(1, ref.numel()), (_SAMPLE,), generator=generator, device=ref.device)
    if ref.numel() <= _SAMPLE:
        places = torch.arange(ref.numel(), device=ref.device)
    given, true = _at(out, places), _at(ref, places)
    counts = true.isfinite() & (true != 0)
    for tensor in inputs:
        if tensor.shape == ref.shape and tensor.is_floating_point():
            counts &= _at(tensor.to(ref.device), places) != true
    number = int(counts.sum())
    if number < _FEWEST:
        return 1.0
    close = max(_CLOSE, 4 * torch.finfo(ref.dtype).eps)
    typical = float(true[counts].abs().median())
    wrong = ~torch.isclose(given, true, rtol=close, atol=close * typical)
    return int((wrong & counts).sum()) / number


def _at(tensor: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the elements at some places in row-major order, as fp64."""
    if tensor.is_contiguous():
        return tensor.reshape(-1)[places].double()
    where = torch.unravel_index(places, tensor.shape)
    return tensor[where].double()
