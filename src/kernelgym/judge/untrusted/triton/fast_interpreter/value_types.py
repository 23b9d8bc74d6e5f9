"""Faster types, shapes and tensors of interpreted values, installed by `switch.py`.

Loaded by path in the zygote: standard library and triton only.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MADE", "TEXTS"]


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


def _handles(original: Any) -> Any:
    """Cache each type's width, so that most arrays need no further check."""
    from triton.language import core

    scalar, pointer = core.dtype, core.pointer_type
    widest: dict[str, int] = {}
    nothing = object()

    def __init__(self: Any, data: Any, dtype: Any, attr: Any = nothing) -> None:
        self.data, self.dtype = data, dtype
        self.attr = {} if attr is nothing else attr
        if dtype.__class__ is scalar:
            most = widest.get(dtype.name)
            if most is None:
                most = widest[dtype.name] = max(8, dtype.primitive_bitwidth) // 8
            if data.itemsize <= most:
                return
        elif dtype.__class__ is pointer:
            return
        self.__post_init__()

    return __init__


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


def _tuples(original: Any) -> Any:
    """Build tuples directly if their type is given, as it usually is."""
    from triton.language import core

    kind = core.tuple_type

    def __init__(self: Any, args: Any, type: Any = None) -> None:
        if type.__class__ is kind:
            self.values, self.type = [*args], type
        else:
            original(self, args, type)

    return __init__


TEXTS = {
    "TensorHandle": "0efd336dc08eb41d",
    "_get_np_dtype": "8f20d41e3207891a",
    "_validate_np_data_size": "5d719f1e7c0db91f",
    "block_type.__init__": "403f4b016ec5c2c3",
    "tensor.__init__": "d9b043b5c9897657",
    "tuple.__init__": "404706e1c76b6342",
}
"""By name: the start of the SHA-256 of each source text that the replacements rely on."""

MADE = {
    "_get_np_dtype": (_converting, ["_get_np_dtype"]),
    "TensorHandle.__init__": (_handles, ["TensorHandle", "_validate_np_data_size"]),
    "block_type.__init__": (_block_types, ["block_type.__init__", "tuple.__init__"]),
    "tensor.__init__": (_tensors, ["tensor.__init__", "tuple.__init__"]),
    "tuple.__init__": (_tuples, ["tuple.__init__"]),
}
"""By name: the function that makes a replacement, and the texts that it was written for."""
