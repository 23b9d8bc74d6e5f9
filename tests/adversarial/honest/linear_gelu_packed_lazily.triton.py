# /// redteam
# problem = "linear_gelu"
# devices = ["cpu", "cuda"]
# what = "Packs its weights at the first call, and again whenever they have changed."
# ///
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_gelu(
    x_ptr, packed_ptr, bias_ptr, y_ptr, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr
):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + inner
        x = tl.load(x_ptr + rows[:, None] * K + k[None, :])
        w = tl.load(packed_ptr + k[:, None] * N + columns[None, :])
        total += tl.dot(x, w, input_precision="ieee")
    total += tl.load(bias_ptr + columns)[None, :]
    total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], total)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self._packed = None
        self._packed_version = None

    def _weights(self):
        weight = self.linear.weight
        version = (weight._version, weight.device, weight.dtype)
        if self._packed is None or self._packed_version != version:
            self._packed = weight.detach().t().contiguous()
            self._packed_version = version
        return self._packed

    def forward(self, x):
        packed = self._weights()
        k, n = packed.shape
        y = x.new_empty(x.shape[0], n)
        linear_gelu[(x.shape[0] // 32, n // 32)](
            x, packed, self.linear.bias, y, n, k, BLOCK=32, BLOCK_K=64
        )
        return y
