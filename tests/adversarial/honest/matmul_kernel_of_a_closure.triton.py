# /// redteam
# problem = "mlp"
# devices = ["cuda"]
# what = "A factory makes a Triton kernel around an epilogue, and gives each its own name."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def keep(value):
    return value


@triton.jit
def relu(value):
    return tl.maximum(value, 0.0)


def layer_with(epilogue):
    @triton.jit
    def layer(x, weight, bias, out, m, n, k, ACT: tl.constexpr, BLOCK: tl.constexpr):
        rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inner = tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK, BLOCK), tl.float32)
        for start in range(0, k, BLOCK):
            at = start + inner
            left = tl.load(
                x + rows[:, None] * k + at[None, :],
                mask=(rows[:, None] < m) & (at[None, :] < k),
                other=0.0,
            )
            right = tl.load(
                weight + columns[None, :] * k + at[:, None],
                mask=(columns[None, :] < n) & (at[:, None] < k),
                other=0.0,
            )
            total += tl.dot(left, right, input_precision="ieee")
        total += tl.load(bias + columns, mask=columns < n, other=0.0)[None, :]
        mask = (rows[:, None] < m) & (columns[None, :] < n)
        tl.store(out + rows[:, None] * n + columns[None, :], ACT(total), mask=mask)

    def run(x, linear):
        m, k = x.shape
        n = linear.out_features
        out = torch.empty(m, n, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
        layer[grid](x, linear.weight, linear.bias, out, m, n, k, ACT=epilogue, BLOCK=32)
        return out

    return run


hidden_layer, last_layer = layer_with(relu), layer_with(keep)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, out_features)

    def forward(self, x):
        return last_layer(hidden_layer(x, self.first), self.second)
