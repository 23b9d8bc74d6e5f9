"""What host memory held when torch or a custom kernel was last done with it.

Whatever a kernel computes outside of both (with NumPy, in Python, through an address) it has to
write to memory that is read by one of them, or is returned. So memory is looked at when it is read:
it must hold what it held when they last wrote it, and what nobody has made in this call must have
been there before. How it was written is not asked; `crossings.py` names the ways that are known.

Only of memory on the host: none of these writes to a device's.
Loaded by path in the untrusted process: standard library and torch only. No boundary.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = ["Ledger", "existing"]


class Ledger:
    """Keeps fingerprints of memory for the time of one call.

    Memory that is given back in the meantime is not held on to.

    Args:
        fingerprint: Of `fingerprint.py`.
        found: Told how many bytes somebody else has written, of what is about to be read.
    """

    def __init__(
        self, fingerprint: Callable[[torch.Tensor], Any], found: Callable[[int], None]
    ) -> None:
        self._fingerprint, self._found = fingerprint, found
        self._prints: dict[int, tuple[StorageWeakRef, Any]] = {}
        self._open = False

    def begin(self, tensors: Iterable[torch.Tensor]) -> None:
        """Write down, at the start of a call, what tensors hold that were there before.

        Where one cannot be read nothing is written down, and nothing found in this call.
        """
        self._prints, self._open = {}, True
        try:
            self.wrote(tensors)
        except (RuntimeError, NotImplementedError):
            self.end()

    def end(self) -> None:
        """Keep nothing until the next call."""
        self._prints, self._open = {}, False

    def wrote(self, tensors: Iterable[torch.Tensor]) -> None:
        """Write down what tensors hold, which torch or a custom kernel has just given them."""
        if self._open:
            for number, storage in _on_host(tensors):
                self._prints[number] = StorageWeakRef(storage), self._print(storage)

    def reads(self, tensors: Iterable[torch.Tensor]) -> None:
        """Look at what is about to be read, or returned; what is found is not found again."""
        if not self._open:
            return
        for number, storage in _on_host(tensors):
            mark, known = self._print(storage), self._prints.get(number)
            if known is None or known[1] != mark:
                self._prints[number] = StorageWeakRef(storage), mark
                self._found(storage.nbytes())

    def _print(self, storage: torch.UntypedStorage) -> Any:
        # Not by way of NumPy, which keeps a storage from being resized ever after.
        return self._fingerprint(torch.empty(0, dtype=torch.uint8).set_(storage))


def existing(model: Any) -> Iterator[torch.Tensor]:
    """Yield all tensors that there are, before a call of `model`."""
    # What the zygote had is frozen, and not among them: no kernel is given any of it.
    # Their types are asked, not they: what an object says of itself may do anything.
    yield from (thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor))
    if isinstance(model, torch.nn.Module):  # a scripted one keeps its own out of sight
        yield from model.parameters()
        yield from model.buffers()


def _on_host(tensors: Iterable[torch.Tensor]) -> Iterator[tuple[int, torch.UntypedStorage]]:
    """Yield the memory that tensors lie in, each once, with a number that is its own."""
    found = set()
    for tensor in tensors:
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):  # sparse ones, and others without memory
            continue
        number = storage._cdata
        if storage.device.type == "cpu" and storage.nbytes() and number not in found:
            found.add(number)
            yield number, storage
