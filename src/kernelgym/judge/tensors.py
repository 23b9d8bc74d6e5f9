"""Finds tensors in nested values, with precisions and sizes; compares bytes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from kernelgym.rulesets import Precision

DTYPES: Mapping[Precision, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
}
"""Types of torch by precision, the one with the fewest digits first."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

_COMPARED_WORDS = 256 << 20


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and dicts, in order."""
    return [leaf for leaf in leaves_of(value) if isinstance(leaf, torch.Tensor)]


def leaves_of(value: Any) -> list[Any]:
    """Return the leaves of nested lists, tuples and dicts, in order, without None."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves_of(item)]
    return [] if value is None else [value]


def plain_output(output: Any) -> Any:
    """Return a model's output with the caches of transformers models as lists of tensors.

    A cache becomes a list with keys and values of each layer, the cache of an encoder-decoder a
    list of its two caches. `kernelgym.judge.untrusted.outputs` reads a candidate's alike.
    """
    caches = sys.modules.get("transformers.cache_utils")
    if caches is None or isinstance(output, torch.Tensor):
        return output
    if isinstance(output, dict):
        return {key: plain_output(item) for key, item in output.items()}
    if isinstance(output, (list, tuple)):
        return [plain_output(item) for item in output]
    if isinstance(output, caches.EncoderDecoderCache):
        both = (output.self_attention_cache, output.cross_attention_cache)
        return [plain_output(cache) for cache in both]
    if isinstance(output, caches.Cache):
        return [[layer.keys, layer.values] for layer in output.layers]
    return output


def precisions_of(value: Any) -> frozenset[Precision]:
    """Return the precisions of the real floating-point tensors in a nested value."""
    return frozenset(_NAMES[t.dtype] for t in tensors_of(value) if t.dtype in _NAMES)


def lowest(precisions: frozenset[Precision]) -> Precision:
    """Return the lowest of several precisions; ``fp32`` if none is given."""
    return next((name for name in DTYPES if name in precisions), "fp32")


def bytes_of(value: Any) -> int:
    """Return the total size of the tensors in a nested value."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(value))


def _flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of a tensor's bytes; of a copy's if the tensor is not contiguous.

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
