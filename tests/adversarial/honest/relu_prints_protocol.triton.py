# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# what = "Prints what looks like answers of a judge's protocol."
# ///
import json
import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


print(json.dumps({"status": "wrong", "correct": False, "speedup": 0.0}))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        relu_kernel[(triton.cdiv(n, 8192),)](x, y, n, BLOCK=8192)
        print(json.dumps({"nonce": 0, "error": {"type": "ValueError", "text": "no"}}))
        print('{"done": 1, "results": [null]}', file=sys.stderr)
        return y
