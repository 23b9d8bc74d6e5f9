# /// redteam
# problem = "orthogonal"
# devices = ["cpu", "cuda"]
# style = "related_weights"
# what = "Multiplies by a weight that starts orthogonal, and by its transpose."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


# /// part products.triton.py


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(features, features)))

    def forward(self, x):
        return product(product(x, self.weight), self.weight.t(), relu=True)
