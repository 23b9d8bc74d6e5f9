# /// redteam
# problem = "causal_mask_buffer"
# devices = ["cpu", "cuda"]
# style = "structured_state"
# what = "Follows the mask of its buffer by comparing indices, and never reads it."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    head = tl.program_id(1) * length * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    at, depth = tl.arange(0, BN), tl.arange(0, D)
    inside = rows[:, None] < length
    place = head + rows[:, None] * D + depth[None, :]
    q = tl.load(q_ptr + place, mask=inside, other=0.0)
    top = tl.full((BM,), float("-inf"), dtype=tl.float32)
    weight = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        known = (start + at) < length
        other = head + (start + at) * D
        k = tl.load(k_ptr + other[None, :] + depth[:, None], mask=known[None, :], other=0.0)
        v = tl.load(v_ptr + other[:, None] + depth[None, :], mask=known[:, None], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where((start + at)[None, :] <= rows[:, None], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        shares = tl.exp(scores - higher[:, None])
        fade = tl.exp(top - higher)
        weight = weight * fade + tl.sum(shares, axis=1)
        total = total * fade[:, None] + tl.dot(shares, v, input_precision="ieee")
        top = higher
    tl.store(out_ptr + place, total / weight[:, None], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(length, length)))

    def forward(self, q, k, v):
        batch, heads, length, depth = q.shape
        q, k, v = (each.contiguous() for each in (q, k, v))
        out = torch.empty_like(q)
        attention_kernel[(triton.cdiv(length, 32), batch * heads)](
            q, k, v, out, length, depth**-0.5, BM=32, BN=32, D=depth
        )
        return out
