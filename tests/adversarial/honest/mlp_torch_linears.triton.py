# /// redteam
# problem = "mlp"
# devices = ["cpu", "cuda"]
# what = "Leaves both linear layers to torch and only fuses what lies between them."
# ///
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def bias_relu(x_ptr, bias_ptr, n, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask) + tl.load(bias_ptr + offsets % columns, mask=mask)
    tl.store(x_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, out_features)

    def forward(self, x):
        between = F.linear(x, self.first.weight)
        n, columns = between.numel(), between.shape[1]
        bias_relu[(triton.cdiv(n, 2048),)](between, self.first.bias, n, columns, BLOCK=2048)
        return F.linear(between, self.second.weight, self.second.bias)
