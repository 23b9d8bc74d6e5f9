# /// redteam
# problem = "mlp"
# devices = ["cpu", "cuda"]
# style = "tutorial_activation"
# what = "Passes the activation to a matrix product by its name."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    ACTIVATION: tl.constexpr,
    BM: tl.constexpr = 32,
    BN: tl.constexpr = 32,
    BK: tl.constexpr = 32,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    columns = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    bias = tl.load(b_ptr + columns, mask=columns < N, other=0.0)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        across, down = k + tl.arange(0, BK)[None, :], k + tl.arange(0, BK)[:, None]
        x = tl.load(x_ptr + rows * K + across, mask=(rows < M) & (across < K), other=0.0)
        w = tl.load(w_ptr + columns * K + down, mask=(down < K) & (columns < N), other=0.0)
        total = tl.dot(x, w, total, input_precision="ieee")
    total += bias
    if ACTIVATION == "relu":
        total = relu(total)
    tl.store(out_ptr + rows * N + columns, total, mask=(rows < M) & (columns < N))


@triton.jit
def relu(x):
    return tl.where(x >= 0, x, 0.0)


def linear(x, layer, activation=""):
    (m, k), n = x.shape, layer.weight.shape[0]
    out = torch.empty((m, n), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
    linear_kernel[grid](x, layer.weight, layer.bias, out, m, n, k, ACTIVATION=activation)
    return out


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, out_features)

    def forward(self, x):
        return linear(linear(x, self.first, "relu"), self.second)
