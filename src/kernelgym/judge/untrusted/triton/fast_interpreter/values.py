"""Faster types, shapes and broadcasts of interpreted values, installed by `switch.py`.

Loaded by path in the zygote: standard library, numpy and triton only.
"""

from __future__ import annotations

import sys
from typing import Any

_PLAIN = frozenset(f"{kind}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64)) | {
    "int1",
    "fp16",
    "bf16",
    "fp32",
    "fp64",
}


def _converting(original: Any) -> Any:
    """Cache NumPy types by name: Triton builds a table at each conversion."""
    from triton.language import core

    scalar, block, pointer = core.dtype, core.block_type, core.pointer_type
    known: dict[str, Any] = {}

    def _get_np_dtype(tt_dtype: Any) -> Any:
        plain = tt_dtype.element_ty if tt_dtype.__class__ is block else tt_dtype
        if plain.__class__ is not scalar and plain.__class__ is not pointer:
            return original(tt_dtype)
        found = known.get(plain.name)
        if found is None:
            found = known[plain.name] = original(tt_dtype)
        return found

    return _get_np_dtype


def _block_types(original: Any) -> Any:
    """Cache the parts of a type that shape and element type determine."""
    from triton.language import core

    known: dict[tuple[Any, ...], tuple[Any, int, str]] = {}
    several, scalar, pointer = core.tuple, core.dtype, core.pointer_type

    def __init__(self: Any, element_ty: Any, shape: Any) -> None:
        values = shape.values if shape.__class__ is several else shape
        usual = element_ty.__class__ is scalar or element_ty.__class__ is pointer
        if not usual or (values.__class__ is not list and values.__class__ is not tuple):
            original(self, element_ty, shape)
            return
        for size in values:
            if size.__class__ is not int:
                original(self, element_ty, shape)
                return
        key = *values, element_ty.name
        parts = known.get(key)
        if parts is None:
            original(self, element_ty, shape)
            known[key] = self.shape.type, self.numel, self.name
            return
        self.element_ty = element_ty
        self.shape = several(values, parts[0])
        self.numel, self.name = parts[1], parts[2]

    return __init__


def _tensors(original: Any) -> Any:
    """Cache the parts of a tensor that depend only on its shape."""
    from triton.language import core

    known: dict[tuple[int, ...], tuple[list[Any], Any, Any]] = {}
    block, several = core.block_type, core.tuple

    def __init__(self: Any, handle: Any, type: Any) -> None:
        if type.__class__ is block:
            key = tuple(type.shape.values)
            dtype = type.element_ty
        elif type.is_block():
            original(self, handle, type)
            return
        else:
            key, dtype = (), type.scalar
        parts = known.get(key)
        if parts is None:
            original(self, handle, type)
            if all(size.__class__ is int for size in key):
                known[key] = list(self.shape.values), self.shape.type, self.numel
            return
        self.handle = handle
        self.numel = parts[2]
        self.type = type
        self.dtype = dtype
        self.shape = several(parts[0], parts[1])

    return __init__


def _sanitizing(original: Any) -> Any:
    """Skip the overflow check without debugging: Triton then discards its result."""
    builder = sys.modules["triton.runtime.interpreter"].InterpreterBuilder

    def binary_op_sanitize_overflow_impl(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> Any:
        if type(self.builder) is builder and not self.builder.options.debug:
            return None
        return original(self, lhs, rhs, binary_op)

    return binary_op_sanitize_overflow_impl


def _broadcasting(original: Any) -> Any:
    """Broadcast directly in the simple cases.

    They are: blocks of one shape, a block and a scalar, and sizes of 1 that grow.
    """
    import numpy as np
    from triton.language import core
    from triton.runtime import interpreter

    block, scalar, pointer, tensor = core.block_type, core.dtype, core.pointer_type, core.tensor
    handle, builder = interpreter.TensorHandle, interpreter.InterpreterBuilder

    def is_plain(value: Any, builds: Any) -> bool:
        kind, held = value.type, value.handle.dtype
        element = kind.element_ty if kind.__class__ is pointer else kind
        usual = element.__class__ is scalar and element.name in _PLAIN
        return usual and held.__class__ is not block and type(builds) is builder

    def splat(value: Any, like: Any) -> Any:
        array = interpreter._get_np_dtype(value.handle.dtype)
        data = np.empty(like.shape.values, dtype=array)
        data[...] = value.handle.data
        return tensor(handle(data, value.handle.dtype.scalar), block(value.type, like.shape))

    def grown(value: Any, shape: list[int]) -> Any:
        if value.type.shape.values == shape:
            return value
        data = np.broadcast_to(value.handle.data, shape)
        of = block(value.type.element_ty, shape)
        return tensor(handle(data, value.handle.dtype.scalar), of)

    def common(left: list[int], right: list[int]) -> list[int] | None:
        """Return the common shape of blocks with equal ranks, otherwise None."""
        if len(left) != len(right):
            return None
        shape = [b if a == 1 else a for a, b in zip(left, right, strict=True)]
        for size, other in zip(shape, right, strict=True):
            if other != size and other != 1:
                return None
        return shape

    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        if left.__class__ is block:
            if right.__class__ is block:
                sizes, others = left.shape.values, right.shape.values
                if sizes == others:
                    return lhs, rhs
                shape = common(sizes, others) if type(self.builder) is builder else None
                if shape is not None:
                    return grown(lhs, shape), grown(rhs, shape)
            elif is_plain(rhs, self.builder):
                return lhs, splat(rhs, left)
        elif right.__class__ is block:
            if is_plain(lhs, self.builder):
                return splat(lhs, right), rhs
        elif not left.is_block() and not right.is_block():
            return lhs, rhs
        return original(self, lhs, rhs)

    return broadcast_impl_value


TEXTS = {
    "TensorHandle": "0efd336dc08eb41d",
    "InterpreterBuilder.create_broadcast": "33c8c86871f4c54a",
    "InterpreterBuilder.create_splat": "f94c3086cfc90d72",
    "InterpreterBuilder.get_block_ty": "252ce7a06cad829b",
    "TritonSemantic.binary_op_sanitize_overflow_impl": "1ad65a10738d191c",
    "TritonSemantic.broadcast_impl_value": "9b7949138c0dd2c1",
    "TritonSemantic.device_assert": "903c1a211e408720",
    "_get_np_dtype": "8f20d41e3207891a",
    "block_type.__init__": "403f4b016ec5c2c3",
    "block_type.with_element_ty": "bfc3811c453d3e2c",
    "pointer_type": "b5a79d1a03a5827d",
    "tensor.__init__": "d9b043b5c9897657",
    "tuple.__init__": "404706e1c76b6342",
}
"""Start of the SHA-256 of each source text of Triton that the replacements rely on, by name."""

MADE = {
    "_get_np_dtype": (_converting, ["_get_np_dtype"]),
    "block_type.__init__": (_block_types, ["block_type.__init__", "tuple.__init__"]),
    "tensor.__init__": (_tensors, ["tensor.__init__", "tuple.__init__"]),
    "TritonSemantic.binary_op_sanitize_overflow_impl": (
        _sanitizing,
        ["TritonSemantic.binary_op_sanitize_overflow_impl", "TritonSemantic.device_assert"],
    ),
    "TritonSemantic.broadcast_impl_value": (
        _broadcasting,
        [
            *("TritonSemantic.broadcast_impl_value", "block_type.with_element_ty", "pointer_type"),
            *("InterpreterBuilder.create_splat", "InterpreterBuilder.create_broadcast"),
            *("InterpreterBuilder.get_block_ty", "TensorHandle"),
        ],
    ),
}
"""Functions that make a replacement, with the names of the texts it relies on."""
