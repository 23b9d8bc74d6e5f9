# /// conformance
# problem = "KernelBench/L1/19"
# language = "triton"
# outcome = "in_place"
# sizes = { batch_size = 1024, dim = 8192 }
# cpu_sizes = { batch_size = 4, dim = 300 }
# ///

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x.relu_()
