# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "function_of_constants"
# what = "Computes a constant in a function of constants."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.constexpr_function
def low(n):
    return float(n - n)


@triton.jit
def relu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + at, mask=mask, other=0.0)
    y = tl.maximum(v, low(3))
    tl.store(out + at, y, mask=mask)


# /// part relu_model.triton.py
