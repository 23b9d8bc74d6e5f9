# /// redteam
# problem = "prototypes"
# devices = ["cpu", "cuda"]
# style = "related_weights"
# what = "Normalises the rows of a weight after the product with them."
# ///
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


# /// part products.triton.py


class ModelNew(nn.Module):
    def __init__(self, count, features):
        super().__init__()
        self.prototypes = nn.Parameter(F.normalize(torch.randn(count, features), dim=1))

    def forward(self, x):
        return product(x, self.prototypes, unit=True, relu=True)
