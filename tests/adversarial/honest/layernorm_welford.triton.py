# /// redteam
# problem = "layernorm"
# devices = ["cpu", "cuda"]
# what = "Merges means and squared deviations of chunks, after Welford."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def welford_layernorm(
    x_ptr, weight_ptr, bias_ptr, y_ptr, columns, eps, ROWS: tl.constexpr, CHUNK: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mean = tl.zeros((ROWS,), dtype=tl.float32)
    squares = tl.zeros((ROWS,), dtype=tl.float32)
    count = 0.0
    for start in range(0, columns, CHUNK):
        x = tl.load(x_ptr + row[:, None] * columns + (start + tl.arange(0, CHUNK))[None, :])
        chunk_mean = tl.sum(x, axis=1) / CHUNK
        centred = x - chunk_mean[:, None]
        chunk_squares = tl.sum(centred * centred, axis=1)
        delta = chunk_mean - mean
        merged = count + CHUNK
        mean = mean + delta * (CHUNK / merged)
        squares = squares + chunk_squares + delta * delta * (count * CHUNK / merged)
        count = merged
    scale = 1.0 / tl.sqrt(squares / columns + eps)
    for start in range(0, columns, CHUNK):
        offsets = start + tl.arange(0, CHUNK)
        places = row[:, None] * columns + offsets[None, :]
        x = tl.load(x_ptr + places)
        weight = tl.load(weight_ptr + offsets)
        bias = tl.load(bias_ptr + offsets)
        y = (x - mean[:, None]) * scale[:, None] * weight[None, :] + bias[None, :]
        tl.store(y_ptr + places, y)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        rows, columns = x.shape
        assert rows % 8 == 0 and columns % 64 == 0, f"unsupported shape {tuple(x.shape)}"
        y = torch.empty_like(x)
        welford_layernorm[(rows // 8,)](
            x, self.norm.weight, self.norm.bias, y, columns, self.norm.eps, ROWS=8, CHUNK=64
        )
        return y
