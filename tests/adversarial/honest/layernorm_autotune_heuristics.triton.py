# /// redteam
# problem = "layernorm"
# devices = ["cpu", "cuda"]
# style = "heuristics"
# what = "Stacks an autotuner on heuristics of a class."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


class Choices:
    @staticmethod
    def columns(arguments):
        return triton.next_power_of_2(arguments["width"])


@triton.autotune([triton.Config({"ROWS": 16}), triton.Config({"ROWS": 32})], key=["width"])
@triton.heuristics({"COLUMNS": Choices.columns})
@triton.jit
def norm_kernel(
    x_ptr, w_ptr, b_ptr, out_ptr, rows, width, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < width)
    x = tl.load(x_ptr + row * width + column, mask=mask, other=0.0)
    mean = tl.sum(x, axis=1, keep_dims=True) / width
    centred = tl.where(mask, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=1, keep_dims=True) / width + eps)
    weight = tl.load(w_ptr + column, mask=column < width)
    bias = tl.load(b_ptr + column, mask=column < width)
    tl.store(out_ptr + row * width + column, centred * scale * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        rows, width = x.shape
        out = torch.empty_like(x)
        norm_kernel[lambda meta: (triton.cdiv(rows, meta["ROWS"]),)](
            x, self.norm.weight, self.norm.bias, out, rows, width, self.norm.eps
        )
        return out
