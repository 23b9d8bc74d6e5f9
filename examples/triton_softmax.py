"""A softmax of rows in three passes, in Triton: the kernel of examples/triton_softmax.json."""

import triton
import triton.language as tl


@triton.jit
def row_softmax(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    peak = -float("inf")
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
        peak = tl.maximum(peak, tl.max(values, axis=0))
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
        total += tl.sum(tl.exp(values - peak), axis=0)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
        tl.store(y + row * columns + at, tl.exp(values - peak) / total, mask=at < columns)
