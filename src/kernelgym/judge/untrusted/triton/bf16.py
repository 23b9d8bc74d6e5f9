"""Makes Triton's interpreter compute with bf16 values.

The interpreter keeps a bf16 value as a 16-bit integer and computes with that integer: sums,
products and `tl.dot` of bf16 tensors are noise, and conversions to bf16 cut digits off where a GPU
rounds to the nearest value. It has no atomic addition of bf16. Here operands are widened to fp32,
and results rounded to bf16.

Loaded by path in the untrusted process: standard library, numpy and triton only. Like
`bounds_check.py`, it serves honest kernels and is no security boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ARITHMETIC = (
    *("fadd", "fsub", "fmul", "fdiv", "frem", "precise_divf", "fma", "clampf"),
    *("minimumf", "minnumf", "maximumf", "maxnumf"),
    *("cos", "sin", "exp", "exp2", "log", "log2", "floor", "ceil", "erf"),
    *("sqrt", "precise_sqrt", "rsqrt"),
)
_COMPARISONS = tuple(
    f"fcmp{order}{name}" for order in "OU" for name in ("LT", "GT", "LE", "GE", "EQ", "NE")
)


def compute_in_bf16() -> None:
    """Teach Triton's interpreter bf16, in this process."""
    from triton import language as tl
    from triton.runtime import interpreter

    builder = type(interpreter.interpreter_builder)
    handle = interpreter.TensorHandle

    def is_bf16(value: Any) -> bool:
        return value.__class__ is handle and value.dtype.scalar is tl.bfloat16

    def wide(value: Any) -> Any:
        return handle(_widened(value.data), tl.float32) if is_bf16(value) else value

    def computing(name: str, is_truth: bool) -> None:
        original = getattr(builder, f"create_{name}", None)
        if original is None:
            return  # an operation of another version of Triton

        def create(self: Any, *args: Any) -> Any:
            if not any(map(is_bf16, args)):
                return original(self, *args)
            found = original(self, *map(wide, args))
            if is_truth:  # typed as bf16, a truth value would be widened like one
                return handle(found.data, tl.int1)
            return handle(_rounded(found.data), tl.bfloat16)

        setattr(builder, f"create_{name}", create)

    for name in _ARITHMETIC:
        computing(name, is_truth=False)
    for name in _COMPARISONS:
        computing(name, is_truth=True)

    dot, cast, to_float = builder.create_dot, builder.cast_impl, builder.create_fp_to_fp

    def create_dot(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        found = dot(self, wide(a), wide(b), wide(d), *options)
        return handle(_rounded(found.data), tl.bfloat16) if is_bf16(d) else found

    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        if is_bf16(source) == (kind.scalar is tl.bfloat16):
            return cast(self, source, kind)
        if is_bf16(source):
            return cast(self, wide(source), kind)
        return handle(_rounded(cast(self, source, tl.float32).data), tl.bfloat16)

    def create_fp_to_fp(self: Any, source: Any, kind: Any, rounding: Any) -> Any:
        usual = rounding is None or "RTNE" in str(rounding)
        if kind.scalar is tl.bfloat16 and source.dtype.scalar is tl.float32 and usual:
            return handle(_rounded(source.data), tl.bfloat16)
        return to_float(self, source, kind, rounding)

    def get_bf16(self: Any, value: float) -> Any:
        import numpy as np

        return handle(_rounded(np.array([value], dtype=np.float32)), tl.bfloat16)

    builder.create_dot, builder.cast_impl = create_dot, cast_impl
    builder.create_fp_to_fp, builder.get_bf16 = create_fp_to_fp, get_bf16
    _add_atomically(builder, is_bf16)

    for operations in (interpreter.ReduceOps, interpreter.ScanOps):
        _combine_widely(operations, is_bf16, wide, handle)


def _add_atomically(builder: Any, is_bf16: Callable[[Any], bool]) -> None:
    """Let `tl.atomic_add` add bf16 values, rounding after each addition as a GPU does."""
    other_types = builder.create_atomic_rmw

    def create_atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        if not is_bf16(val):  # Triton has no atomic operation on bf16 but addition
            return other_types(self, op, ptr, val, mask, *rest)
        import numpy as np
        from triton._C.libtriton import interpreter as memory

        before = np.zeros_like(val.data)
        left = np.broadcast_to(mask.data, val.data.shape).copy()
        while left.any():
            # Addresses that occur several times take turns.
            active = np.flatnonzero(left)
            _, firsts = np.unique(ptr.data.reshape(-1)[active], return_index=True)
            turn = np.zeros_like(left)
            turn.reshape(-1)[active[firsts]] = True
            held = memory.load(ptr.data, turn, before, val.data.dtype)
            memory.store(ptr.data, _rounded(_widened(held) + _widened(val.data)), turn)
            before, left = np.where(turn, held, before), left & ~turn
        return type(val)(before, val.dtype.scalar)

    builder.create_atomic_rmw = create_atomic_rmw


def _combine_widely(operations: Any, is_bf16: Any, wide: Any, handle: Any) -> None:
    """Let reductions and scans combine bf16 values in fp32."""
    from triton import language as tl

    original = operations.apply_impl

    def apply_impl(self: Any, values: Any) -> Any:
        narrow = [is_bf16(value.handle) for value in values]
        if not any(narrow):
            return original(self, values)
        given = tuple(
            self.to_tensor(wide(value.handle).data, tl.float32) if is_narrow else value
            for value, is_narrow in zip(values, narrow, strict=True)
        )
        found = original(self, given)
        single = not isinstance(found, tuple | list)
        results = [found] if single else list(found)
        for index, (result, is_narrow) in enumerate(zip(results, narrow, strict=False)):
            if is_narrow and result.dtype.scalar is tl.float32:
                kind = result.type  # not `to_tensor`: it makes a block of a sum to a scalar
                kind = kind.with_element_ty(tl.bfloat16) if kind.is_block() else tl.bfloat16
                results[index] = tl.tensor(handle(_rounded(result.handle.data), tl.bfloat16), kind)
        return results[0] if single else type(found)(results)

    operations.apply_impl = apply_impl


def _widened(bits: Any) -> Any:
    """Return bf16 values, given as 16-bit integers, as fp32."""
    import numpy as np

    return np.left_shift(bits.astype(np.uint32), 16, dtype=np.uint32).view(np.float32)


def _rounded(values: Any) -> Any:
    """Return the nearest bf16 values as 16-bit integers, ties to even."""
    import numpy as np

    values = np.ascontiguousarray(values, dtype=np.float32).reshape(np.shape(values))
    bits = values.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) >> 16
    quiet = (bits >> 16) | 0x40  # rounding could turn a NaN into an infinity
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)
