# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "static_loop_and_tuple"
# what = "Unrolls a loop over a tuple of constants."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + at, mask=mask, other=0.0)
    y = v
    for i in tl.static_range(2):
        y = tl.maximum(y, 0.0 * i)
    tl.store(out + at, y, mask=mask)


# /// part relu_model.triton.py
