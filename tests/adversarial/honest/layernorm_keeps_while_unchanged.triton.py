# /// redteam
# problem = "layernorm"
# devices = ["cpu", "cuda"]
# what = "Keeps copies of its parameters, and makes them anew whenever PyTorch counts a change."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


# /// part layernorm_rows.triton.py


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.versions = self.kept = None

    def forward(self, x):
        parameters = self.norm.weight, self.norm.bias
        versions = [each._version for each in parameters]
        if versions != self.versions:
            self.versions, self.kept = versions, [each.detach().clone() for each in parameters]
        return layernorm(x, *self.kept, self.norm.eps)
