"""Gives interpreted kernels the values that Triton leaves to the device.

- `tl.dot` of fp32 operands without ``input_precision="ieee"`` computes in TF32 on a GPU: operands
  keep 10 bits of their fraction. The interpreter would compute in full fp32.
- A lane that a mask turns off loads nothing. Without ``other`` its value is undefined; the
  interpreter's zero would make a sum over it right by chance. Floats become NaN.

Not covered: ``tf32x3`` and ``bf16x3``, which come close to fp32, and integers of masked lanes.

Loaded by path in the untrusted process: standard library, numpy and triton only. Like
`bounds_check.py`, it serves honest kernels and is no security boundary.
"""

from __future__ import annotations

from typing import Any


class GpuValues:
    """Patches of Triton's interpreter that give GPU values; without effect until switched on."""

    def __init__(self) -> None:
        from triton.runtime import interpreter

        self.on = False
        """Whether values are those of a GPU."""
        builder = type(interpreter.interpreter_builder)
        self._handle = interpreter.TensorHandle
        self._round_operands(builder)
        self._leave_lanes_undefined(builder, interpreter._get_np_dtype)

    def _round_operands(self, builder: Any) -> None:
        from triton import language as tl
        from triton._C.libtriton import ir

        dot, handle, coarse = builder.create_dot, self._handle, ir.INPUT_PRECISION.TF32

        def create_dot(this: Any, a: Any, b: Any, d: Any, precision: Any, *options: Any) -> Any:
            if self.on and precision == coarse:
                a, b = (
                    handle(_tf32(each.data), each.dtype)
                    if each.dtype.scalar is tl.float32
                    else each
                    for each in (a, b)
                )
            return dot(this, a, b, d, precision, *options)

        builder.create_dot = create_dot

    def _leave_lanes_undefined(self, builder: Any, array_type: Any) -> None:
        import numpy as np

        load, handle = builder.create_masked_load, self._handle

        def create_masked_load(
            this: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **options: Any
        ) -> Any:
            if self.on and other is None:
                kind = pointers.get_element_ty()
                # Tensor descriptors pass a bare array as the mask.
                active = mask if isinstance(mask, np.ndarray) else mask.data
                if kind.is_floating() and not active.all():
                    missing = np.full_like(pointers.data, np.nan, dtype=np.float32)
                    other = handle(_as(missing, kind, array_type(kind)), kind)
            return load(this, pointers, mask, other, *rest, **options)

        builder.create_masked_load = create_masked_load


def _as(missing: Any, kind: Any, array: Any) -> Any:
    """Return an array of NaN in a Triton type, whose array may hold integers."""
    import numpy as np

    if np.issubdtype(array, np.floating):
        return missing.astype(array)
    bits = {"bf16": 0x7FC0}.get(kind.name, 0x7F)  # eight bits: NaN in all of Triton's types but one
    return np.full_like(missing, bits, dtype=array)


def _tf32(values: Any) -> Any:
    """Return fp32 values rounded to TF32: nearest, ties away from zero."""
    import numpy as np

    values = np.ascontiguousarray(values, dtype=np.float32).reshape(np.shape(values))
    bits = values.view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)
