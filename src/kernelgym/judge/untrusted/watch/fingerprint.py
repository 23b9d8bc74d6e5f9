"""Fingerprints tensors by their values and overwrites tensors with wrong values.

A watched call uses fingerprints to find whether a launch changed a tensor, and overwriting to
remove what a function of an extension computed. A kernel can be written to match a fingerprint, so
fingerprints prove nothing against hostile kernels.

Loaded by path in the untrusted process: standard library and torch only.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch

# A kernel's `device` may say that tensors of the CPU lie on a GPU (`triton/cuda_on_cpu.py`).
_device_of = torch._C.TensorBase.device.__get__

_record: Any = torch._C._autograd._enable_record_function  # in this thread
_ROW = 1 << 20
_ROWS_AT_ONCE = 32  # 128 MB of words, twice as much for their products


class _Depth(threading.local):
    within = 0
    """Number of `_unwatched` blocks that this thread is inside of."""


_depth = _Depth()


def fingerprint(tensor: torch.Tensor) -> Any:
    """Return a fingerprint of a tensor: equal bytes give equal values.

    Tensors with different bytes, or the same bytes in another order, nearly always differ in it.
    """
    # torch calls a single element contiguous whatever its stride, but then cannot view it as bytes:
    # set the stride to 1.
    with _unwatched() if _has_memory(tensor) else contextlib.nullcontext():
        plain = tensor.detach().contiguous().reshape(-1).as_strided((tensor.numel(),), (1,))
        kind = (str(plain.dtype), plain.numel())
        if not plain.numel():
            return kind
        return (*kind, *_sums(_words(plain.view(torch.uint8))))


def _has_memory(tensor: torch.Tensor) -> bool:
    """Return True if the tensor's elements lie in its own memory.

    A tensor that wraps or represents another one has no memory of its own: it can be read only
    through its torch function or dispatch handlers.
    """
    try:
        with torch._C.DisableTorchFunctionSubclass():
            storage = torch.Tensor.untyped_storage(tensor)
            start, size = storage.data_ptr(), storage.nbytes()
            return bool(start and start <= torch.Tensor.data_ptr(tensor) <= start + size)
    except (RuntimeError, NotImplementedError):
        return False


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    """Hide the block's operators from dispatch modes and from records."""
    _depth.within += 1
    _record(False)
    try:
        with torch._C.DisableTorchFunctionSubclass(), torch._C._DisableTorchDispatch():
            yield
    finally:
        _depth.within -= 1
        _record(not _depth.within)


def _sums(words: torch.Tensor) -> tuple[Any, Any]:
    """Return two checksums modulo 2^64 of a tensor's words, as sums weighted by odd numbers.

    The random weights depend on a word's row and its place in that row. Words have at most 32 bits.
    Even weights would lose the highest bits of a sum, such as the signs of all elements.
    """
    weights = _weights(min(_ROW, 1 << words.numel().bit_length()), str(_device_of(words)))
    row = weights.numel()
    whole = words[: words.numel() // row * row].view(-1, row)
    sums = [(words[whole.numel() :] * weights[: words.numel() % row]).sum()]
    for number, block in enumerate(whole.split(_ROWS_AT_ONCE)):
        of_rows = (block * weights).sum(1)
        sums.append((of_rows * weights[: len(block)]).sum() * (2 * number + 1))
    return torch.stack(sums).sum().item(), sums[0].item()


def _words(flat: torch.Tensor) -> torch.Tensor:
    """Return bytes as 32-bit words, or unchanged if that is impossible."""
    if flat.numel() % 4:
        return flat
    return (flat.clone() if flat.data_ptr() % 4 else flat).view(torch.int32)


@lru_cache(maxsize=24)  # one for each size, 16 MB together
def _weights(size: int, device: str) -> torch.Tensor:
    with _unwatched():  # cached, so no active mode may change them
        drawer = torch.Generator().manual_seed(20_261)
        numbers = torch.randint(
            -(1 << 62), 1 << 62, (size,), dtype=torch.int64, generator=drawer, device="cpu"
        )
        return (numbers * 2 + 1).to(device)


def poison(tensor: torch.Tensor) -> None:
    """Fill a tensor with NaN, or with 1 for integers and booleans."""
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
