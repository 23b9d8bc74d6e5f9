# /// conformance
# problem = "KernelBench/L3/4"
# language = "triton"
# outcome = "weight_mismatch"
# cpu_sizes = { batch_size = 2 }
# ///

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def relu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    relu_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.fc3 = nn.Linear(84, num_classes)
        self.fc2 = nn.Linear(120, 84)
        self.fc1 = nn.Linear(400, 120)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.conv1 = nn.Conv2d(1, 6, 5)

    def forward(self, x):
        x = F.max_pool2d(relu(self.conv1(x)), 2)
        x = F.max_pool2d(relu(self.conv2(x)), 2).flatten(1)
        x = relu(self.fc1(x))
        x = relu(self.fc2(x))
        return self.fc3(x)
