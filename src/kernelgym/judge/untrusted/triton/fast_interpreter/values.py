"""Faster conversions, constants and broadcasts of values, installed by `switch.py`.

Loaded by path in the zygote: standard library, numpy and triton only.
"""

from __future__ import annotations

import math
import sys
from typing import Any

__all__ = ["MADE", "TEXTS"]

_INT32 = range(-(1 << 31), 1 << 31)
_FP32_LEAST, _FP32_MOST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
_PLAIN = frozenset(f"{kind}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64)) | {
    "int1",
    "fp16",
    "bf16",
    "fp32",
    "fp64",
}
_CONSTANTS = {"int32": "int32", "int64": "int64", "fp32": "float32", "fp64": "float64"}
"""Triton's names of the types that Python's numbers usually become, and NumPy's names."""


def _sanitizing(original: Any) -> Any:
    """Skip the overflow check without debugging: Triton then discards its result."""
    builder = sys.modules["triton.runtime.interpreter"].InterpreterBuilder

    def binary_op_sanitize_overflow_impl(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> Any:
        if type(self.builder) is builder and not self.builder.options.debug:
            return None
        return original(self, lhs, rhs, binary_op)

    return binary_op_sanitize_overflow_impl


def _type_checking(original: Any) -> Any:
    """Cache the type that two types are computed in; skip needless casts."""
    from triton.language import core

    scalar, block, pointer = core.dtype, core.block_type, core.pointer_type
    int32, fp32, tensor = core.int32, core.float32, core.tensor
    known: dict[tuple[str, bool, str, bool, bool], Any] = {}

    def computed_in(self: Any, left: Any, right: Any, numbers: tuple[bool, bool], div: bool) -> Any:
        key = left.name, numbers[0], right.name, numbers[1], div
        found = known.get(key)
        if found is None:
            found = self.computation_type_impl(left, numbers[0], right, numbers[1], div)
            known[key] = found
        return found

    def binary_op_type_checking_impl(
        self: Any,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        left: Any = None
        right: Any = None  # element types; None: call Triton's own
        numbers = False, False
        if lhs.__class__ is tensor:
            left = lhs.type
            if left.__class__ is block:
                left = left.element_ty
        if rhs.__class__ is tensor:
            right = rhs.type
            if right.__class__ is block:
                right = right.element_ty
            if left is None and right.__class__ is scalar and arithmetic_check:
                left, numbers = _type_of_number(lhs, int32, fp32), (True, False)
        elif left.__class__ is scalar and arithmetic_check:
            right, numbers = _type_of_number(rhs, int32, fp32), (False, True)
        if left.__class__ is scalar and right.__class__ is scalar:
            if not arithmetic_check:
                return self.broadcast_impl_value(lhs, rhs)
            found = computed_in(self, left, right, numbers, div_or_mod)
            if numbers[0] or numbers[1]:
                if found.name not in _CONSTANTS:
                    return original(
                        self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod
                    )
                if numbers[0]:
                    lhs = self.scalar_constant(lhs, dtype=found)
                else:
                    rhs = self.scalar_constant(rhs, dtype=found)
            if not numbers[0] and left.name != found.name:
                lhs = self.cast(lhs, found)
            if not numbers[1] and right.name != found.name:
                rhs = self.cast(rhs, found)
            return self.broadcast_impl_value(lhs, rhs)
        if left.__class__ is pointer and right.__class__ is scalar:
            if allow_lhs_ptr and right.is_int():
                return self.broadcast_impl_value(lhs, rhs)
        return original(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    return binary_op_type_checking_impl


def _type_of_number(value: Any, int32: Any, fp32: Any) -> Any:
    """Return Triton's type for a Python number; None for unusual numbers."""
    if value.__class__ is int:
        return int32 if value in _INT32 else None
    if value.__class__ is float:
        usual = _FP32_LEAST <= abs(value) <= _FP32_MOST or value == 0 or not math.isfinite(value)
        return fp32 if usual else None
    return None


def _constants(original: Any) -> Any:
    """Build constants directly.

    Triton looks up a builder's method by the type's name, or builds a zero from the type.
    """
    import numpy as np
    from triton.language import core
    from triton.runtime import interpreter

    handle, builder, tensor = interpreter.TensorHandle, interpreter.InterpreterBuilder, core.tensor
    types = {dtype.name: dtype for dtype in (core.int32, core.int64, core.float32, core.float64)}
    arrays = {name: np.dtype(array) for name, array in _CONSTANTS.items()}
    scalar = core.dtype

    def scalar_constant(self: Any, value: Any, dtype: Any) -> Any:
        usual = dtype.__class__ is scalar and (value.__class__ is int or value.__class__ is float)
        if not usual or dtype.name not in types or type(self.builder) is not builder:
            return original(self, value, dtype)
        data = np.array([0 if value == 0 else value], dtype=arrays[dtype.name])
        return tensor(handle(data, types[dtype.name]), dtype)

    return scalar_constant


def _unwrapping(original: Any) -> Any:
    """Return values of common types at once: few are wrapped in `constexpr`."""
    from triton.language import core

    plain = frozenset({core.tensor, core.dtype, core.block_type, int, float, bool, str, type(None)})

    def _unwrap_if_constexpr(o: Any) -> Any:
        return o if o.__class__ in plain else original(o)

    return _unwrap_if_constexpr


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


def _binary_operators(original: Any) -> Any:
    """Skip the width check for results that fit their type."""
    from triton.language import core
    from triton.runtime import interpreter

    handle, scalar = interpreter.TensorHandle, core.dtype
    fits, convert = interpreter._validate_np_data_size, interpreter._get_np_dtype

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        output, dtype = op(lhs.data, rhs.data), lhs.dtype.scalar
        if dtype.__class__ is not scalar or output.itemsize * 8 > dtype.primitive_bitwidth:
            if not fits(output, dtype):
                output = output.astype(convert(dtype))
        return handle(output, dtype)

    return binary_op


TEXTS = {
    "TensorHandle": "0efd336dc08eb41d",
    "InterpreterBuilder.binary_op": "df11eb49f20b0587",
    "InterpreterBuilder.create_broadcast": "33c8c86871f4c54a",
    "_unwrap_if_constexpr": "54db2f51b2d3d031",
    "InterpreterBuilder.create_splat": "f94c3086cfc90d72",
    "InterpreterBuilder.get_block_ty": "252ce7a06cad829b",
    "InterpreterBuilder.get_null_value": "4a1cea493f29b9dc",
    "InterpreterBuilder.get_int32": "164cb9f286a6b98e",
    "InterpreterBuilder.get_int64": "c47ba38d409ee6f3",
    "InterpreterBuilder.get_fp32": "e4a8bd13081a4492",
    "InterpreterBuilder.get_fp64": "ba212f431db8cb97",
    "TritonSemantic.binary_op_sanitize_overflow_impl": "1ad65a10738d191c",
    "TritonSemantic.binary_op_type_checking_impl": "503ea09edfd58574",
    "TritonSemantic.broadcast_impl_value": "9b7949138c0dd2c1",
    "TritonSemantic.cast": "193ece285f97106d",
    "TritonSemantic.check_ptr_type_impl": "ba27149758812a35",
    "TritonSemantic.computation_type_impl": "fda5159dddb0544f",
    "TritonSemantic.device_assert": "903c1a211e408720",
    "TritonSemantic.integer_promote_impl": "7321a1ab440a9bee",
    "TritonSemantic.scalar_constant": "ee364f1e1738f313",
    "TritonSemantic.to_tensor": "aec8898b788da2db",
    "TritonSemantic.to_tensor_type": "f3b04d2c1f4baf80",
    "_validate_np_data_size": "5d719f1e7c0db91f",
    "block_type.with_element_ty": "bfc3811c453d3e2c",
    "pointer_type": "b5a79d1a03a5827d",
}
"""By name: the start of the SHA-256 of each source text that the replacements rely on."""


def _of(owner: str, *names: str) -> list[str]:
    return [f"{owner}.{name}" for name in names]


_SEMANTIC, _BUILDER = "TritonSemantic", "InterpreterBuilder"
_CHECKING = _of(
    _SEMANTIC,
    *("binary_op_type_checking_impl", "broadcast_impl_value", "cast", "check_ptr_type_impl"),
    *("computation_type_impl", "integer_promote_impl", "scalar_constant", "to_tensor"),
    "to_tensor_type",
)
_CONSTANT = [
    f"{_SEMANTIC}.scalar_constant",
    *_of(_BUILDER, "get_null_value", "get_int32", "get_int64", "get_fp32", "get_fp64"),
]
_SPLAT = ["pointer_type", *_of(_BUILDER, "create_splat", "create_broadcast", "get_block_ty")]

MADE = {
    f"{_SEMANTIC}.binary_op_sanitize_overflow_impl": (
        _sanitizing,
        _of(_SEMANTIC, "binary_op_sanitize_overflow_impl", "device_assert"),
    ),
    f"{_SEMANTIC}.binary_op_type_checking_impl": (_type_checking, [*_CHECKING, "pointer_type"]),
    f"{_SEMANTIC}.broadcast_impl_value": (
        _broadcasting,
        [f"{_SEMANTIC}.broadcast_impl_value", "block_type.with_element_ty", *_SPLAT],
    ),
    f"{_SEMANTIC}.scalar_constant": (_constants, _CONSTANT),
    f"{_BUILDER}.binary_op": (
        _binary_operators,
        [f"{_BUILDER}.binary_op", "TensorHandle", "_validate_np_data_size"],
    ),
    "_unwrap_if_constexpr": (_unwrapping, ["_unwrap_if_constexpr"]),
}
"""By name: the function that makes a replacement, and the texts that it was written for."""
