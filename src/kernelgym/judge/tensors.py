"""Finds the tensors in nested values, sums up their sizes and compares their bytes."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["bytes_of", "leaves_of", "same_bytes", "tensors_of"]

_COMPARED_WORDS = 256 << 20


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and dicts, in order."""
    return [leaf for leaf in leaves_of(value) if isinstance(leaf, torch.Tensor)]


def leaves_of(value: Any) -> list[Any]:
    """Return the leaves other than None of nested values, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves_of(item)]
    return [] if value is None else [value]


def bytes_of(value: Any) -> int:
    """Return the total size of the tensors in a nested value."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(value))


def _flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes; of a copy unless it is contiguous.

    The stride is set to 1 first: torch calls a single element contiguous whatever its stride, but
    refuses to view it as bytes if its stride is not 1.
    """
    flat = tensor.contiguous().reshape(-1)
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8)


def _words(flat: torch.Tensor) -> torch.Tensor:
    """Return bytes viewed as 64-bit integers if aligned, else unchanged."""
    odd = flat.numel() % 8 or flat.storage_offset() % 8 or flat.data_ptr() % 8
    return flat if odd else flat.view(torch.int64)


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return True if two tensors agree bit for bit, NaNs included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (_words(_flat_bytes(tensor)) for tensor in (a, b))
    if a.dtype != b.dtype:
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    # `torch.equal` allocates a byte for every word compared. Piece by piece, that is at most
    # 256 MiB.
    pieces = range(0, a.numel(), _COMPARED_WORDS)
    return all(
        bool(torch.equal(a[start : start + _COMPARED_WORDS], b[start : start + _COMPARED_WORDS]))
        for start in pieces
    )
