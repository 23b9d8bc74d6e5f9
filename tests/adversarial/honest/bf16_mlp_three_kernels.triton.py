# /// redteam
# problem = "bf16_mlp"
# devices = ["cpu", "cuda"]
# what = "Three linear kernels that round to bf16 between the layers, as the reference does."
# style = "bf16_products"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    n,
    K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    ACT: tl.constexpr,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, K)
    x = tl.load(x_ptr + rows[:, None] * K + inner[None, :])
    w = tl.load(w_ptr + columns[:, None] * K + inner[None, :])
    acc = tl.dot(x, tl.trans(w), out_dtype=tl.float32)
    acc += tl.load(b_ptr + columns).to(tl.float32)[None, :]
    if ACT:
        acc = tl.maximum(acc, 0.0)
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], acc.to(tl.bfloat16))


# /// part three_linears.triton.py
