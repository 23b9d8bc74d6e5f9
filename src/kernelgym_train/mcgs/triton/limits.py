"""`fits`: whether a Triton kernel's block sizes fit a GPU's registers and shared memory.

Contract: what is refused needs more than a streaming multiprocessor of a current GPU has, by sizes
that are read from the text: the tile of ``tl.dot`` with its pipeline's buffers, and vectors of a
block. A product of floats in full precision, which tensor cores do not compute, is refused as well
if it takes too many instructions a thread. A kernel whose sizes cannot be read fits. Pure.
"""

from __future__ import annotations

import math

import libcst as cst

from kernelgym_train.mcgs.triton.knobs import OPTIONS, values_of
from kernelgym_train.mcgs.triton.loops import arange_names, shapes_of, tile_of
from kernelgym_train.mcgs.triton.module import JitFunction, TritonModule, calls_in

SHARED_BYTES = 232_448
"""Shared memory that one block may have on an H100."""
_MOST_SUMS = 256  # sums a thread: each takes a register, of which there are 255
_MOST_VALUES = 512  # values of one block a thread; more than half are kept in memory

# Multiplications of floats a thread, one instruction each. On an H200, kernels with 8,192 reached a
# fifth of the speed of those with at most 2,048, and compiled in 7 s; one with 32,768 took over
# a minute.
_MOST_PRODUCTS = 4096


def fits(module: TritonModule, item_bytes: int = 2) -> bool:
    """Return False if a Triton kernel cannot run, keeps sums in memory, or compiles for too long.

    Args:
        module: The module.
        item_bytes: Bytes of one element of the operands of ``tl.dot``, at least.
    """
    for function in module.functions.values():
        values = OPTIONS | values_of(module, function.name)
        threads = 32 * values["num_warps"]
        tile = tile_of(function)
        if tile is not None and set(tile) <= set(values):
            rows, columns, depth = (values[name] for name in tile)
            buffers = max(1, values["num_stages"] - 1)
            if rows * columns > _MOST_SUMS * threads:
                return False
            if buffers * depth * (rows + columns) * item_bytes > SHARED_BYTES:
                return False
            products = rows * columns * depth
            if item_bytes > 2 and products > _MOST_PRODUCTS * threads and _is_exact(function):
                return False
        elif any(
            math.prod(values[name] for name in names) > _MOST_VALUES * threads
            for names in (*((name,) for name in arange_names(function)), *shapes_of(function))
            if set(names) <= set(values)
        ):
            return False
    return True


def _is_exact(function: JitFunction) -> bool:
    """Return True if a ``tl.dot`` asks for products in full precision."""
    given = {
        arg.keyword.value: arg.value
        for call in calls_in(function.node, "dot")
        for arg in call.args
        if arg.keyword is not None
    }
    precision, tf32 = given.get("input_precision"), given.get("allow_tf32")
    if isinstance(precision, cst.SimpleString):
        return precision.evaluated_value == "ieee"
    return isinstance(tf32, cst.Name) and tf32.value == "False"
