"""Finds host memory that a kernel wrote with neither torch nor a custom kernel.

A kernel can compute with NumPy, in Python or through an address. It must then write the values to
memory that torch or a custom kernel reads, or that the call returns. So memory is fingerprinted
when torch or a custom kernel writes it, and checked when it is read or returned: its values must be
the ones last written, and memory not written in this call must have existed before the call. How a
kernel wrote the memory does not matter here; `host_transfers.py` names the known ways.

To blame no kernel for other code's writes, the rest of a call is not checked once

- native code of an extension has run;
- a second thread has worked;
- more than 1 GiB was fingerprinted.

A kernel can evade the check by any of these. The check also misses writes within a launch (by a
grid that is a function) and writes number by number. It covers host memory only: none of these ways
of computing writes to a device's memory.

Loaded by path in the untrusted process: standard library and torch only. No security boundary.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_LOOKED_AT_BYTES = 1 << 30  # per call; takes about two seconds
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


class HostMemory:
    """Keeps fingerprints of host memory during one call.

    It holds no reference to the memory, so that memory can be freed during the call. No method
    raises: if memory cannot be read, nothing more is checked in this call.

    Args:
        fingerprint: The function of `fingerprint.py`.
        found: Function that is called with the size of memory about to be read that neither torch
            nor a custom kernel wrote.
    """

    def __init__(
        self, fingerprint: Callable[[torch.Tensor], Any], found: Callable[[int], None]
    ) -> None:
        self._fingerprint, self._found = fingerprint, found
        self._prints: dict[int, tuple[StorageWeakRef, int, Any]] = {}
        self._open, self._thread, self._left = False, 0, 0

    def begin(self, tensors: Iterable[torch.Tensor]) -> None:
        """Begin a call: record the values of tensors that exist before it."""
        self._prints, self._open = {}, True
        self._thread, self._left = threading.get_ident(), _LOOKED_AT_BYTES
        self.wrote(tensors)

    def end(self) -> None:
        """Forget all records, and check nothing until the next call."""
        self._prints, self._open = {}, False

    def meet(self) -> None:
        """Stop checking if another thread than the call's works: it may be amid a write."""
        if threading.get_ident() != self._thread:
            self.end()

    def wrote(self, tensors: Iterable[torch.Tensor]) -> None:
        """Record the values of tensors that torch or a custom kernel has just written."""
        self._guarded(self._write_down, tensors)

    def reads(self, tensors: Iterable[torch.Tensor]) -> None:
        """Check tensors about to be read or returned; report each unexpected change once."""
        self._guarded(self._look_at, tensors)

    def overwrites(self, tensor: torch.Tensor) -> None:
        """Record unrecorded memory that is about to be overwritten completely.

        Its present values then count as known, whatever code wrote them.
        """
        self._guarded(self._come_to_know, [tensor])

    def _guarded(self, work: Callable[[Any], None], tensors: Iterable[torch.Tensor]) -> None:
        self.meet()
        if self._open:
            try:
                work(tensors)
            except Exception:  # a tensor class of the kernel may raise anything
                self.end()

    def _write_down(self, tensors: Iterable[torch.Tensor]) -> None:
        for number, storage in _on_host(tensors):
            self._keep(number, storage, self._print(storage))

    def _come_to_know(self, tensors: list[torch.Tensor]) -> None:
        (tensor,) = tensors
        for number, storage in _on_host(tensors):
            known = self._prints.get(number)
            unknown = known is None or known[1] != storage.nbytes()
            if unknown and _fills(tensor, storage):
                self._keep(number, storage, self._print(storage))

    def _look_at(self, tensors: Iterable[torch.Tensor]) -> None:
        for number, storage in _on_host(tensors):
            mark, known = self._print(storage), self._prints.get(number)
            if not self._open:  # `_print` may have ended it
                return
            # A storage that was resized past torch's operators counts whole.
            if storage.nbytes() and (known is None or known[1:] != (storage.nbytes(), mark)):
                self._keep(number, storage, mark)
                self._found(storage.nbytes())

    def _keep(self, number: int, storage: torch.UntypedStorage, mark: Any) -> None:
        self._prints[number] = StorageWeakRef(storage), storage.nbytes(), mark

    def _print(self, storage: torch.UntypedStorage) -> Any:
        self._left -= storage.nbytes()
        if self._left < 0:
            self.end()
        if self._left < 0 or not storage.nbytes():  # an empty storage may grow
            return None
        # Not through NumPy: it would prevent any later resize of the storage.
        return self._fingerprint(torch.empty(0, dtype=torch.uint8).set_(storage))


def existing(model: Any) -> Iterator[torch.Tensor]:
    """Yield all tensors in host memory that exist before a call of `model`."""
    # The zygote froze its own tensors, so get_objects omits them; no kernel receives those.
    # Test types, not isinstance: an object's __class__ may run code of the kernel.
    yield from _tensors_among(gc.get_objects())
    if isinstance(model, torch.nn.Module):
        # A scripted module hides its tensors from get_objects, and a kernel may call gc.freeze.
        # Call the methods of torch.nn.Module: a kernel's attributes may shadow them.
        yield from torch.nn.Module.parameters(model)
        yield from torch.nn.Module.buffers(model)
        for module in torch.nn.Module.modules(model):
            yield from _tensors_among(vars(module).values())


def _fills(tensor: torch.Tensor, storage: torch.UntypedStorage) -> bool:
    return bool(tensor.numel() * tensor.element_size() == storage.nbytes())


def _tensors_among(things: Iterable[Any]) -> Iterator[torch.Tensor]:
    yield from (thing for thing in things if issubclass(type(thing), torch.Tensor))


def _on_host(tensors: Iterable[torch.Tensor]) -> Iterator[tuple[int, torch.UntypedStorage]]:
    """Yield each host storage of the tensors once, with its identity."""
    found = set()
    for storage in _storages(tensors):
        number = storage._cdata
        if storage.device.type == "cpu" and number not in found:
            found.add(number)
            yield number, storage


def _storages(tensors: Iterable[torch.Tensor]) -> Iterator[torch.UntypedStorage]:
    for tensor in tensors:
        with torch._C.DisableTorchFunctionSubclass():
            if tensor.layout is torch.sparse_coo:
                parts = [tensor._indices(), tensor._values()]
            elif tensor.layout in _COMPRESSED:
                parts = [getattr(tensor, name)() for name in _COMPRESSED[tensor.layout]]
                parts.append(tensor.values())
            else:
                parts = [tensor]
            for part in parts:
                try:
                    storage = torch.Tensor.untyped_storage(part)
                    if storage.nbytes() and not storage.data_ptr():  # of wrapper tensors
                        continue
                except (RuntimeError, NotImplementedError, ValueError):  # a tensor without memory
                    continue
                yield storage
