"""Checks every memory access of an interpreted Triton kernel against its launch's tensors.

Triton's interpreter loads and stores at any address: without the check, a kernel that lacks a mask
would give right answers or crash at random. A kernel may also be given addresses as integers, such
as a tensor of `data_ptr()` values for a group of matrices. Where it casts them to pointers, the
tensors of this process that lie there count as the launch's own; an address in no tensor does not.

Loaded by path in the untrusted process: standard library, numpy and triton only. Code in the same
process can undo the check, so it serves honest kernels and is no security boundary.
"""

from __future__ import annotations

import gc
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any


def check_interpreter_accesses(races: Any = None) -> None:
    """Patch Triton's interpreter to check the range of every memory access.

    Args:
        races: A `Races` from `races.py`, told of every access that lies in one tensor; or None.
    """
    import numpy as np
    from triton.runtime import interpreter

    spans = _Spans(np, _living)
    builder = type(interpreter.interpreter_builder)
    executor = interpreter.GridExecutor
    prepare, call = executor._init_args_hst, executor.__call__

    def nested(self: Any, *args: Any, **kwargs: Any) -> Any:
        outer = spans.save()
        interrupted = races.begin(self.fn) if races is not None else None
        try:
            return call(self, *args, **kwargs)
        finally:
            spans.restore(outer)
            if races is not None:
                races.end(interrupted)

    def prepared(self: Any, args: Any, kwargs: Any) -> Any:
        on_host = prepare(self, args, kwargs)
        names = getattr(self, "arg_names", None) or []
        named = [(names[i] if i < len(names) else f"#{i}", a) for i, a in enumerate(on_host[0])]
        spans.set([*named, *on_host[1].items()])
        return on_host

    def checked(name: str, pointer: int, mask: int | None) -> None:
        original = getattr(builder, name)
        kind = "store" if "store" in name else "load" if "load" in name else "atomic"

        def access(self: Any, *args: Any, **kwargs: Any) -> Any:
            active = None if mask is None else args[mask]
            # Tensor descriptors pass a bare array as the mask, and options by keyword.
            if active is not None and not isinstance(active, np.ndarray):
                active = active.data
            found = spans.check(kind, args[pointer], active)
            if races is not None and races.on and found is not None:
                values = None
                if kind == "store":
                    values = np.broadcast_to(args[1].data, args[pointer].data.shape)
                    values = values.reshape(-1) if active is None else values[active]
                races.access(kind, self, *found, values)
            return original(self, *args, **kwargs)

        setattr(builder, name, access)

    cast = builder.create_int_to_ptr

    def made_of_integers(self: Any, value: Any, kind: Any) -> Any:
        spans.admit(value.data)
        return cast(self, value, kind)

    builder.create_int_to_ptr = made_of_integers
    if races is not None:
        races.shuffle(builder)
    executor.__call__, executor._init_args_hst = nested, prepared
    checked("create_masked_load", 0, 1)
    checked("create_masked_store", 0, 2)
    checked("create_atomic_cas", 0, None)
    checked("create_atomic_rmw", 1, 3)


class _Spans:
    """The address ranges that the running launch may access."""

    def __init__(self, np: Any, living: Callable[[], Iterator[Any]] = lambda: iter(())) -> None:
        self._np, self._living = np, living
        self._set: tuple[list[int], list[int], list[str]] = ([], [], [])
        self._found: list[tuple[int, int]] | None = None  # where this process's tensors lie

    def save(self) -> tuple[list[int], list[int], list[str]]:
        return self._set

    def restore(self, saved: tuple[list[int], list[int], list[str]]) -> None:
        self._set, self._found = saved, None

    def set(self, arguments: list[tuple[str, Any]]) -> None:
        found: dict[int, tuple[int, str]] = {}

        def visit(name: str, value: Any) -> None:
            if isinstance(value, tuple):
                for item in value:
                    visit(name, item)
                return
            value = getattr(value, "base", None) if hasattr(value, "block_shape") else value
            if not hasattr(value, "data_ptr"):
                return
            storage = getattr(value, "base", value) if hasattr(value, "reinterpret") else value
            storage = storage.untyped_storage()
            start = storage.data_ptr()
            found.setdefault(start, (start + storage.nbytes(), name))

        for name, value in arguments:
            visit(name, value)
        self._arrange(found)
        self._found = None

    def admit(self, addresses: Any) -> None:
        """Admit tensors of this process that contain addresses given as integers."""
        starts, ends, names = self._set
        known = {s: (e, n) for s, e, n in zip(starts, ends, names, strict=True)}
        count = len(known)
        unsigned = self._np.asarray(addresses).astype(self._np.uint64)
        for address in self._np.unique(unsigned).tolist():
            index = bisect_right(starts, address) - 1
            if address and not (index >= 0 and address < ends[index]):
                if self._found is None:  # a launch makes no tensors
                    self._found = [*self._storages()]
                for start, end in self._found:
                    if start <= address < end:
                        known.setdefault(start, (end, "a tensor that an integer points to"))
        if len(known) > count:
            self._arrange(known)

    def _storages(self) -> Iterator[tuple[int, int]]:
        for tensor in self._living():
            try:
                storage = tensor.untyped_storage()
                yield storage.data_ptr(), storage.data_ptr() + storage.nbytes()
            except (AttributeError, RuntimeError, NotImplementedError):
                continue  # a tensor without memory of its own

    def _arrange(self, found: dict[int, tuple[int, str]]) -> None:
        starts = sorted(found)
        self._set = starts, [found[s][0] for s in starts], [found[s][1] for s in starts]

    def check(self, kind: str, pointers: Any, mask: Any) -> Any:
        """Return what an access touches: addresses, tensor's span, element's size.

        None if it touches nothing, or several tensors.

        Raises:
            IndexError: If it touches no tensor of the launch.
        """
        np = self._np
        addresses = np.asarray(pointers.data, dtype=np.uint64)
        if mask is not None:
            active = np.asarray(mask, dtype=bool)
            if active.shape != addresses.shape:
                active = np.broadcast_to(active, addresses.shape)
            addresses = addresses[active]
        if addresses.size == 0:
            return None
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        known_starts, known_ends, names = self._set
        # The fast path: if the lowest and the highest address lie in one tensor, all do.
        index = bisect_right(known_starts, int(addresses.min())) - 1
        if index >= 0 and int(addresses.max()) + size <= known_ends[index]:
            span = known_starts[index], known_ends[index], names[index]
            return addresses.reshape(-1), span, size
        addresses = addresses.reshape(-1)
        starts, ends = (np.array(bounds, dtype=np.uint64) for bounds in (known_starts, known_ends))
        if len(starts):
            owner = np.maximum(np.searchsorted(starts, addresses, side="right"), 1) - 1
            # Subtract the size from the end: added to an address, it could overflow.
            fine = (addresses >= starts[owner]) & (addresses <= ends[owner] - np.uint64(size))
        else:
            owner, fine = np.zeros(addresses.shape, int), np.zeros(addresses.shape, bool)
        if fine.all():
            return None
        bad = int(np.argmin(fine))
        where = "no tensor was passed to this launch"
        if len(starts):
            first, base = int(addresses[bad]), int(starts[owner[bad]])
            end, name = int(ends[owner[bad]]), names[owner[bad]]
            past = (first - end) // size
            where = (
                f"the first is {past} elements past the end of {name!r}"
                if first >= end
                else f"the first is {(base - first) // size} elements before {name!r}"
                if first < base
                else f"the first straddles the end of {name!r}"
            )
        count = int(addresses.size - fine.sum())
        raise IndexError(
            f"out-of-bounds {kind}: {count} of {addresses.size} active lanes lie outside the "
            f"launch's tensors; {where}"
        )


def _living() -> Iterator[Any]:
    """Yield the tensors that this process holds, except those inherited from the zygote."""
    torch = sys.modules.get("torch")
    if torch is not None:
        # Test types, not isinstance: an object's __class__ may run code of the kernel.
        yield from (each for each in gc.get_objects() if issubclass(type(each), torch.Tensor))
