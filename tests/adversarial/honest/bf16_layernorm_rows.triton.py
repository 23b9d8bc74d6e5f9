# /// redteam
# problem = "bf16_layernorm"
# devices = ["cpu", "cuda"]
# what = "Loads bf16 rows and weights, and computes mean and variance in fp32."
# style = "half_rows"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layernorm(x_ptr, w_ptr, b_ptr, out_ptr, features, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0) * features
    at = tl.arange(0, BLOCK)
    inside = at < features
    x = tl.load(x_ptr + start + at, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, x - tl.sum(x, axis=0) / features, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / features + eps)
    w = tl.load(w_ptr + at, mask=inside).to(tl.float32)
    b = tl.load(b_ptr + at, mask=inside).to(tl.float32)
    tl.store(out_ptr + start + at, (centred * scale * w + b).to(tl.bfloat16), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, dtype=torch.bfloat16)

    def forward(self, x):
        out = torch.empty_like(x)
        rows, features = x.shape
        layernorm[(rows,)](
            x, self.norm.weight, self.norm.bias, out, features, self.norm.eps, BLOCK=512
        )
        return out
