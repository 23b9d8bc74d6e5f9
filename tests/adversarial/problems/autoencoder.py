"""An encoder and a decoder, whose weight starts as the transpose of the encoder's."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.encoder = nn.Linear(features, hidden, bias=False)
        self.decoder = nn.Linear(hidden, features, bias=False)
        self.decoder.weight.data.copy_(self.encoder.weight.data.t())

    def forward(self, x):
        return self.decoder(torch.relu(self.encoder(x)))


def get_inputs():
    return [torch.randn(128, 96)]


def get_init_inputs():
    return [96, 64]
