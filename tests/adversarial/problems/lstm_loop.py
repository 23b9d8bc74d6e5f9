import torch
import torch.nn as nn


class Model(nn.Module):
    """An LSTM, step by step."""

    def __init__(self, width):
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, x):
        cell = self.lstm
        h = c = torch.zeros(x.shape[0], x.shape[2])
        out = []
        for t in range(x.shape[1]):
            gates = x[:, t] @ cell.weight_ih_l0.t() + cell.bias_ih_l0
            gates = gates + h @ cell.weight_hh_l0.t() + cell.bias_hh_l0
            i, f, g, o = gates.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            out.append(h)
        return torch.stack(out, 1)


def get_inputs():
    return [torch.randn(16, 32, 64)]


def get_init_inputs():
    return [64]
