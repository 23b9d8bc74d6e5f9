# /// redteam
# problem = "autoencoder"
# devices = ["cpu", "cuda"]
# style = "related_weights"
# what = "Packs the encoder's weight when it is constructed, and reads the decoder's in each call."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


# /// part products.triton.py


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.encoder = nn.Linear(features, hidden, bias=False)
        self.decoder = nn.Linear(hidden, features, bias=False)
        self.decoder.weight.data.copy_(self.encoder.weight.data.t())
        packed = self.encoder.weight.detach().t().contiguous()
        self.register_buffer("packed", packed, persistent=False)

    def forward(self, x):
        return product(product(x, self.packed.t(), relu=True), self.decoder.weight)
