"""What host memory held when torch or a custom kernel was last done with it.

Whatever a kernel computes outside of both (with NumPy, in Python, through an address) it has to
write to memory that is read by one of them, or is returned. So memory is looked at when it is read:
it must hold what it held when they last wrote it, and what nobody has made in this call must have
been there before. How it was written is not asked; `host_transfers.py` names the ways that are
known.

Nothing is found where it could be somebody else's doing: in a call in which native code or a second
thread has worked, memory was resized, or more was looked at than is bearable. Who wants to is not
found, then; nor who writes inside of a launch (a grid that is a function), or number by number.

Only of memory on the host: none of these writes to a device's.
Loaded by path in the untrusted process: standard library and torch only. No boundary.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = ["HostMemory", "existing"]

_LOOKED_AT_BYTES = 1 << 30  # in a call; some two seconds
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


class HostMemory:
    """Keeps fingerprints of memory for the time of one call.

    Memory that is given back in the meantime is not held on to. No method raises: where something
    cannot be looked at, nothing more is found in this call.

    Args:
        fingerprint: Of `fingerprint.py`.
        found: Told how many bytes somebody else has written, of what is about to be read.
    """

    def __init__(
        self, fingerprint: Callable[[torch.Tensor], Any], found: Callable[[int], None]
    ) -> None:
        self._fingerprint, self._found = fingerprint, found
        self._prints: dict[int, tuple[StorageWeakRef, int, Any]] = {}
        self._open, self._thread, self._left = False, 0, 0

    def begin(self, tensors: Iterable[torch.Tensor]) -> None:
        """Write down, at the start of a call, what tensors hold that were there before."""
        self._prints, self._open = {}, True
        self._thread, self._left = threading.get_ident(), _LOOKED_AT_BYTES
        self.wrote(tensors)

    def end(self) -> None:
        """Keep nothing until the next call."""
        self._prints, self._open = {}, False

    def meet(self) -> None:
        """End if this is another thread than the call's: its work may be half done at any time."""
        if threading.get_ident() != self._thread:
            self.end()

    def wrote(self, tensors: Iterable[torch.Tensor]) -> None:
        """Write down what tensors hold, which torch or a custom kernel has just given them."""
        self._guarded(self._write_down, tensors)

    def reads(self, tensors: Iterable[torch.Tensor]) -> None:
        """Look at what is about to be read, or returned; what is found is not found again."""
        self._guarded(self._look_at, tensors)

    def overwrites(self, tensor: torch.Tensor) -> None:
        """Have what is about to be written over, all of it, count as known, whoever made it."""
        self._guarded(self._come_to_know, [tensor])

    def _guarded(self, work: Callable[[Any], None], tensors: Iterable[torch.Tensor]) -> None:
        self.meet()
        if self._open:
            try:
                work(tensors)
            except Exception:  # what a tensor of the kernel's own making may raise
                self.end()

    def _write_down(self, tensors: Iterable[torch.Tensor]) -> None:
        for number, storage in _on_host(tensors):
            self._keep(number, storage, self._print(storage))

    def _come_to_know(self, tensors: list[torch.Tensor]) -> None:
        (tensor,) = tensors
        for number, storage in _on_host(tensors):
            if number not in self._prints and _fills(tensor, storage):
                self._keep(number, storage, self._print(storage))

    def _look_at(self, tensors: Iterable[torch.Tensor]) -> None:
        for number, storage in _on_host(tensors):
            mark, known = self._print(storage), self._prints.get(number)
            if known is not None and known[1] != storage.nbytes():
                self.end()  # resized, and what is new in it holds anything
            if not self._open:  # or another thread has come
                return
            if storage.nbytes() and (known is None or known[2] != mark):
                self._keep(number, storage, mark)
                self._found(storage.nbytes())

    def _keep(self, number: int, storage: torch.UntypedStorage, mark: Any) -> None:
        self._prints[number] = StorageWeakRef(storage), storage.nbytes(), mark

    def _print(self, storage: torch.UntypedStorage) -> Any:
        self._left -= storage.nbytes()
        if self._left < 0:
            self.end()
        if self._left < 0 or not storage.nbytes():  # which may grow
            return None
        # Not by way of NumPy, which keeps a storage from being resized ever after.
        return self._fingerprint(torch.empty(0, dtype=torch.uint8).set_(storage))


def existing(model: Any) -> Iterator[torch.Tensor]:
    """Yield all tensors that there are, before a call of `model`."""
    # What the zygote had is frozen, and not among them: no kernel is given any of it.
    # Their types are asked, not they: what an object says of itself may do anything.
    yield from _tensors_among(gc.get_objects())
    if isinstance(model, torch.nn.Module):
        # A scripted one keeps its own out of sight, and a kernel may freeze what it has made.
        # Attributes of the kernel's may be called as methods are.
        yield from torch.nn.Module.parameters(model)
        yield from torch.nn.Module.buffers(model)
        for module in torch.nn.Module.modules(model):
            yield from _tensors_among(vars(module).values())


def _fills(tensor: torch.Tensor, storage: torch.UntypedStorage) -> bool:
    return bool(tensor.numel() * tensor.element_size() == storage.nbytes())


def _tensors_among(things: Iterable[Any]) -> Iterator[torch.Tensor]:
    yield from (thing for thing in things if issubclass(type(thing), torch.Tensor))


def _on_host(tensors: Iterable[torch.Tensor]) -> Iterator[tuple[int, torch.UntypedStorage]]:
    """Yield the memory that tensors lie in, each once, with a number that is its own."""
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
                    if storage.nbytes() and not storage.data_ptr():  # of tensors that wrap others
                        continue
                except (RuntimeError, NotImplementedError, ValueError):  # they have no memory
                    continue
                yield storage
