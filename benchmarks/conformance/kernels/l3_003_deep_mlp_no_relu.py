# /// conformance
# problem = "KernelBench/L3/3"
# language = "triton"
# outcome = "either"
# cpu = false
# ///

import itertools

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_layer_sizes, output_size):
        super().__init__()
        sizes = [input_size, *hidden_layer_sizes, output_size]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))

    def forward(self, x):
        x = self.layers[0](x)
        for layer in self.layers[1:]:
            x = layer(x)
        return x
