"""A kernel can see and open only the GPU on which it is judged."""

from __future__ import annotations

import pytest

from kernelgym import Kernel, LocalEvaluator, Problem
from kernelgym.types import Status
from support.gpus import gpu_count

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_count() < 2, reason="needs two GPUs"),
]

PROBLEM = Problem(
    "Own/L1/1",
    "Own",
    1,
    "double",
    """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x + x

def get_inputs():
    return [torch.rand(1 << 20)]

def get_init_inputs():
    return []
""",
)
KERNEL = """
import os
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
import torch, triton, triton.language as tl
from torch import nn

OPENED = 0
for number in range(16):
    try:
        os.close(os.open(f"/dev/nvidia{number}", os.O_RDWR))
        OPENED += 1
    except OSError:
        pass

@triton.jit
def doubled(x, out, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * factor, at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        # 2, which is right, only if the process sees one GPU and opened one device file.
        factor = 1.0 + 1.0 * (OPENED * torch.cuda.device_count())
        doubled[(triton.cdiv(x.numel(), 1024),)](x, out, factor, x.numel(), BLOCK=1024)
        return out
"""


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_kernel_on_one_gpu_sees_and_opens_no_other(device: str) -> None:
    with LocalEvaluator(device, timing=False) as evaluator:
        verdict = evaluator.evaluate(PROBLEM, Kernel(KERNEL, "triton"))
    assert verdict.status is Status.CORRECT, verdict.message
