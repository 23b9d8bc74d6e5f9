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

_ROW = 1 << 20
_ROWS_AT_ONCE = 32  # 256 MB of words, and as much for their products


def fingerprint(tensor: torch.Tensor) -> Any:
    """Return what two tensors share if and, nearly always, only if their bytes agree, in order."""
    # A single element counts as contiguous whatever its stride, and cannot be viewed as bytes then.
    plain = tensor.detach().contiguous().reshape(-1).as_strided((tensor.numel(),), (1,))
    kind = (str(plain.dtype), plain.numel())
    if not plain.numel():
        return kind
    words = _words(plain.view(torch.uint8))
    # Sums modulo 2^64 of words times random odd numbers, of their place in a row and of its row.
    weights = _weights(min(_ROW, 1 << words.numel().bit_length()), str(tensor.device))
    row = weights.numel()
    whole = words[: words.numel() // row * row].view(-1, row)
    sums = [(words[whole.numel() :].to(torch.int64) * weights[: words.numel() % row]).sum()]
    for number, block in enumerate(whole.split(_ROWS_AT_ONCE)):
        of_rows = (block.to(torch.int64) * weights).sum(1)
        sums.append((of_rows * weights[: len(block)]).sum() * (2 * number + 1))
    return (*kind, torch.stack(sums).sum().item(), sums[0].item())


def _words(flat: torch.Tensor) -> torch.Tensor:
    """View bytes as the widest integers that they can be viewed as."""
    for dtype in (torch.int64, torch.int32):
        if flat.numel() % dtype.itemsize == 0 and flat.data_ptr() % dtype.itemsize == 0:
            return flat.view(dtype)
    return flat


@lru_cache(maxsize=24)  # one for each size, 16 MB together
def _weights(size: int, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(20_261)
    numbers = torch.randint(-(1 << 62), 1 << 62, (size,), dtype=torch.int64, generator=generator)
    return (numbers * 2 + 1).to(device)


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
