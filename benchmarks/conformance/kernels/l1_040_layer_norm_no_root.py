# /// conformance
# problem = "KernelBench/L1/40"
# language = "triton"
# outcome = "wrong_values"
# cpu_sizes = { batch_size = 2, features = 4, dim1 = 40, dim2 = 36 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_sums(x_ptr, sums_ptr, squares_ptr, size, CHUNK: tl.constexpr):
    sample, chunk = tl.program_id(0), tl.program_id(1)
    offsets = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + sample * size + offsets, mask=offsets < size, other=0.0)
    place = sample * tl.num_programs(1) + chunk
    tl.store(sums_ptr + place, tl.sum(x, axis=0))
    tl.store(squares_ptr + place, tl.sum(x * x, axis=0))


@triton.jit
def normalize(x_ptr, mean_ptr, scale_ptr, weight_ptr, bias_ptr, out_ptr, size, CHUNK: tl.constexpr):
    sample, chunk = tl.program_id(0), tl.program_id(1)
    offsets = chunk * CHUNK + tl.arange(0, CHUNK)
    mask = offsets < size
    x = tl.load(x_ptr + sample * size + offsets, mask=mask)
    value = (x - tl.load(mean_ptr + sample)) * tl.load(scale_ptr + sample)
    weight = tl.load(weight_ptr + offsets, mask=mask)
    bias = tl.load(bias_ptr + offsets, mask=mask)
    tl.store(out_ptr + sample * size + offsets, value * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape)

    def forward(self, x):
        batch, size = x.shape[0], x[0].numel()
        grid = (batch, triton.cdiv(size, 4096))
        sums = torch.empty(grid, device=x.device)
        squares = torch.empty_like(sums)
        partial_sums[grid](x, sums, squares, size, CHUNK=4096)
        mean = sums.double().sum(1) / size
        variance = squares.double().sum(1) / size - mean * mean
        scale = 1 / (variance + self.ln.eps)
        out = torch.empty_like(x)
        normalize[grid](
            x, mean.float(), scale.float(), self.ln.weight, self.ln.bias, out, size, CHUNK=4096
        )
        return out
