# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "helper_imported_by_name"
# what = "Imports parts of the language by name, and a helper has a default."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language import maximum


@triton.jit
def at_least(v, low=0.0):
    return maximum(v, low)


@triton.jit
def relu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + at, mask=mask, other=0.0)
    y = at_least(v)
    tl.store(out + at, y, mask=mask)


# /// part relu_model.triton.py
