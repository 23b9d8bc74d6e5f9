# /// conformance
# problem = "KernelBench/L3/34"
# language = "triton"
# outcome = "correct"
# cpu_sizes.batch_size = 2
# cpu_sizes.input_size = 24
# cpu_sizes.hidden_size = 16
# cpu_sizes.output_size = 8
# cpu_sizes.sequence_length = 5
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, 2.0 * tl.sigmoid(2.0 * x) - 1.0, mask=mask)


def tanh(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    tanh_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)

    def forward(self, x, h0):
        hidden, outputs = h0, []
        for step in x:
            hidden = tanh(self.i2h(torch.cat((step, hidden), dim=1)))
            outputs.append(self.h2o(hidden))
        return torch.stack(outputs)
