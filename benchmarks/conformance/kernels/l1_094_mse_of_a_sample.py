# /// conformance
# problem = "KernelBench/L1/94"
# language = "triton"
# outcome = "either"
# sizes = { batch_size = 2048, input_shape = [4096] }
# cpu = false
# ///

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, predictions, targets):
        return torch.mean((predictions[::2] - targets[::2]) ** 2)
