# /// redteam
# problem = "layernorm"
# devices = ["cuda"]
# what = "Asks the device how many processors it has, and loops over rows."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def persistent_layernorm(
    x_ptr, weight_ptr, bias_ptr, y_ptr, rows, columns, eps, BLOCK: tl.constexpr
):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + offsets, mask=mask, other=0.0)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
        mean = tl.sum(x, axis=0) / columns
        centred = tl.where(mask, x - mean, 0.0)
        variance = tl.sum(centred * centred, axis=0) / columns
        y = centred / tl.sqrt(variance + eps) * weight + bias
        tl.store(y_ptr + row * columns + offsets, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        rows, columns = x.shape
        processors = torch.cuda.get_device_properties(x.device).multi_processor_count
        y = torch.empty_like(x)
        persistent_layernorm[(min(rows, processors),)](
            x,
            self.norm.weight,
            self.norm.bias,
            y,
            rows,
            columns,
            self.norm.eps,
            BLOCK=triton.next_power_of_2(columns),
        )
        return y
