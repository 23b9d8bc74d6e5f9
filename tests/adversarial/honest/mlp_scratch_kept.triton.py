# /// redteam
# problem = "mlp"
# devices = ["cpu", "cuda"]
# what = "Keeps a scratch buffer for each shape, and activates it in place."
# ///
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_kernel(x, w, b, out, N, K, B: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(x + rows[:, None] * K + k[None, :])
        right = tl.load(w + columns[None, :] * K + k[:, None])
        total += tl.dot(left, right, input_precision="ieee")
    total += tl.load(b + columns)[None, :]
    tl.store(out + rows[:, None] * N + columns[None, :], total)


@triton.jit
def relu_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(x + at, tl.maximum(value, 0.0), mask=at < n)


def linear(x, layer, out):
    n, k = layer.weight.shape
    grid = x.shape[0] // 32, n // 32
    linear_kernel[grid](x, layer.weight, layer.bias, out, n, k, B=32, BK=32)
    return out


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, out_features)
        self.scratch = {}

    def forward(self, x):
        key = tuple(x.shape), x.device
        if key not in self.scratch:
            self.scratch[key] = x.new_empty(x.shape[0], self.first.out_features)
        mid = linear(x, self.first, self.scratch[key])
        relu_kernel[(triton.cdiv(mid.numel(), 1024),)](mid, mid.numel(), BLOCK=1024)
        return linear(mid, self.second, x.new_empty(x.shape[0], self.second.out_features))
