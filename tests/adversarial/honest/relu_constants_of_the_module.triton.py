# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "constants_of_the_module"
# what = "Reads constants of the module that are tl.constexpr."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl

LOW = tl.constexpr(0.0)


@triton.jit
def relu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + at, mask=mask, other=0.0)
    y = tl.maximum(v, LOW)
    tl.store(out + at, y, mask=mask)


# /// part relu_model.triton.py
