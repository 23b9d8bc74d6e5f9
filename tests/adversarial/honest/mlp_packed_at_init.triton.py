# /// redteam
# problem = "mlp"
# devices = ["cpu", "cuda"]
# what = "Transposes its random weights once, when constructed."
# ///
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer(
    x_ptr,
    packed_ptr,
    bias_ptr,
    y_ptr,
    N,
    K,
    RELU: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
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
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], total)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, out_features)
        for name in ("first", "second"):
            packed = getattr(self, name).weight.detach().t().contiguous()
            self.register_buffer(f"packed_{name}", packed, persistent=False)

    def forward(self, x):
        for name, relu in (("first", True), ("second", False)):
            packed = getattr(self, f"packed_{name}")
            k, n = packed.shape
            y = x.new_empty(x.shape[0], n)
            layer[(x.shape[0] // 32, n // 32)](
                x, packed, getattr(self, name).bias, y, n, k, RELU=relu, BLOCK=32, BLOCK_K=64
            )
            x = y
        return x
