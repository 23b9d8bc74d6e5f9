# /// redteam
# problem = "attention"
# devices = ["cpu", "cuda"]
# style = "tutorial_attention"
# what = "Takes powers of two, and block pointers for keys and values."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attend(q, k_block, v_block, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    top = tl.zeros([BM], dtype=tl.float32) - float("inf")
    weight = tl.zeros([BM], dtype=tl.float32)
    total = tl.zeros([BM, D], dtype=tl.float32)
    for start in range(0, length, BN):
        start = tl.multiple_of(start, BN)
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        known = start + tl.arange(0, BN) < length
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(known[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        shares = tl.math.exp2(scores - higher[:, None])
        fade = tl.math.exp2(top - higher)
        weight = weight * fade + tl.sum(shares, 1)
        total = tl.dot(shares, v, total * fade[:, None], input_precision="ieee")
        top = higher
        k_block = tl.advance(k_block, (0, BN))
        v_block = tl.advance(v_block, (BN, 0))
    return total / weight[:, None]


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * length * D
    row = tl.program_id(0) * BM
    rows = tl.make_block_ptr(q_ptr + head, (length, D), (D, 1), (row, 0), (BM, D), (1, 0))
    keys = tl.make_block_ptr(k_ptr + head, (D, length), (1, D), (0, 0), (D, BN), (0, 1))
    values = tl.make_block_ptr(v_ptr + head, (length, D), (D, 1), (0, 0), (BN, D), (1, 0))
    q = tl.load(rows, boundary_check=(0,), padding_option="zero")
    result = attend(q, keys, values, length, scale * 1.4426950408889634, BM, BN, D)
    out = tl.make_block_ptr(out_ptr + head, (length, D), (D, 1), (row, 0), (BM, D), (1, 0))
    tl.store(out, result, boundary_check=(0,))


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        batch, heads, length, depth = q.shape
        out = torch.empty_like(q)
        attention_kernel[(triton.cdiv(length, 64), batch * heads)](
            q, k, v, out, length, depth**-0.5, BM=64, BN=32, D=depth
        )
        return out
