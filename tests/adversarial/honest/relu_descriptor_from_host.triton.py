# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "descriptors_from_host"
# what = "Is given tensor descriptors by the host."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def relu_kernel(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    place = [tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS]
    out.store(place, tl.maximum(x.load(place), 0.0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        flat = x.view(-1, x.shape[-1])
        rows, columns = flat.shape
        source = TensorDescriptor.from_tensor(flat, [64, 64])
        target = TensorDescriptor.from_tensor(out.view_as(flat), [64, 64])
        relu_kernel[(triton.cdiv(rows, 64), triton.cdiv(columns, 64))](source, target, 64, 64)
        return out
