# /// redteam
# problem = "add"
# devices = ["cpu", "cuda"]
# style = "device_guards"
# what = "Asserts that the inputs lie on a GPU, in the ways that kernels do."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    x = tl.load(a + at, mask=keep, other=0.0)
    y = tl.load(b + at, mask=keep, other=0.0)
    tl.store(out + at, x + y, mask=keep)


def launch(a, b):
    assert a.is_cuda and b.is_cuda
    assert a.device.type == "cuda", "inputs belong on the GPU"
    assert torch.cuda.is_available() and a.device == b.device
    if a.get_device() != torch.cuda.current_device() or a.is_cpu:
        raise RuntimeError(f"{a.device} is not the current device")
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    with torch.cuda.device(a.device):
        combine[(triton.cdiv(a.numel(), 1024),)](a, b, out, a.numel(), BLOCK=1024)
    assert out.is_cuda
    return out


class ModelNew(nn.Module):
    def forward(self, a, b):
        return launch(a, b)
