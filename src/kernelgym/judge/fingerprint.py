"""Tell tensors apart by their values, and overwrite them with values that cannot be right.

Used where custom kernels are watched: whether a launch changed a tensor, and to take away what a
function of an extension computed. A fingerprint is no proof against a kernel that is out to match
it. Loaded by path in the untrusted process: standard library and torch only.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import Any

import torch

__all__ = ["fingerprint", "poison", "without_numbers"]

_CHUNK = 1 << 20


def fingerprint(tensor: torch.Tensor) -> Any:
    """Return what two tensors share if and, nearly always, only if their bytes agree, in order."""
    plain = tensor.detach().contiguous().reshape(-1)
    kind = (str(plain.dtype), plain.numel())
    if not plain.numel():
        return kind
    words = plain.view(torch.uint8)
    if words.numel() % 4 == 0 and plain.data_ptr() % 4 == 0:
        words = words.view(torch.int32)
    weights = _weights(min(_CHUNK, 1 << words.numel().bit_length()), str(tensor.device))
    sums = [
        (chunk.to(torch.float64) * weights[: chunk.numel()]).sum()
        for chunk in words.split(weights.numel())
    ]
    return (*kind, *torch.stack(sums).tolist())


@lru_cache(maxsize=8)
def _weights(size: int, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(20_261)
    return (torch.rand(size, dtype=torch.float64, generator=generator) + 0.5).to(device)


def poison(tensor: torch.Tensor) -> None:
    """Fill a tensor with NaN, or with 1 if it holds integers or booleans."""
    # Not with something absurd: as an index it would fault the device.
    floating = tensor.is_floating_point() or tensor.is_complex()
    with contextlib.suppress(RuntimeError, NotImplementedError):  # not every layout can be filled
        tensor.detach().fill_(float("nan") if floating else 1)


def without_numbers(result: Any) -> Any:
    """Return a result with NaN in place of its floating-point numbers."""
    if isinstance(result, float):
        return float("nan")
    if type(result) in (list, tuple):
        return type(result)(without_numbers(item) for item in result)
    return result
