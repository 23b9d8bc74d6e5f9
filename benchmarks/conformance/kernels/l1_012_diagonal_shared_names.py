# /// conformance
# problem = "KernelBench/L1/12"
# language = "cuda"
# outcome = "either"
# documented = "namespace sharing"
# cpu_sizes = { M = 96, N = 64 }
# cpu = false
# ///

import torch
import torch.nn as nn

# These are names of the problem's module: KernelBench runs both in one namespace.
M = 32
N = 32


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        out = torch.zeros_like(B)
        out[:32, :32] = A[:32, None] * B[:32, :32]
        return out
