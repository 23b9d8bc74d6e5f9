# /// redteam
# problem = "attention"
# devices = ["cuda"]
# what = "A program a query: scores against blocks of keys, softmax rescaled as it goes."
# ///
import torch
import torch.nn as nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale, SIZE: gl.constexpr, KEYS: gl.constexpr
):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    of_key: gl.constexpr = gl.SliceLayout(1, layout)
    of_value: gl.constexpr = gl.SliceLayout(0, layout)
    row, head = gl.program_id(0), gl.program_id(1)
    key = gl.arange(0, KEYS, layout=of_key)
    value = gl.arange(0, SIZE, layout=of_value)
    query = gl.load(q_ptr + (head * length + row) * SIZE + value) * scale
    mean = gl.zeros([SIZE], gl.float32, layout=of_value)
    top, total = float("-inf"), 0.0
    for start in range(0, length, KEYS):
        inside = start + key < length
        places = (head * length + start + key)[:, None] * SIZE + value[None, :]
        keys = gl.load(k_ptr + places, mask=inside[:, None], other=0.0)
        scores = gl.sum(keys * query[None, :], axis=1)
        scores = gl.where(inside, scores, float("-inf"))
        higher = gl.maximum(top, gl.max(scores, axis=0))
        shrunk = gl.exp(top - higher)
        weights = gl.exp(scores - higher)
        values = gl.load(v_ptr + places, mask=inside[:, None], other=0.0)
        mean = mean * shrunk + gl.sum(values * weights[:, None], axis=0)
        total = total * shrunk + gl.sum(weights, axis=0)
        top = higher
    gl.store(out_ptr + (head * length + row) * SIZE + value, mean / total)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        length, size = q.shape[-2:]
        heads = q.numel() // (length * size)
        scale = size**-0.5
        attention_kernel[(length, heads)](q, k, v, out, length, scale, size, 32, num_warps=4)
        return out
