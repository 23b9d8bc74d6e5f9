"""Triton: functions that Triton compiles at their first launch, or interprets on the CPU."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from kernelgym.languages.definition import Language, OwnKernel
from kernelgym.languages.examples import worked_examples

_BLEND = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def blend_kernel(a_ptr, b_ptr, out_ptr, weight, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(a_ptr + offsets, mask=mask)
    b = tl.load(b_ptr + offsets, mask=mask)
    gate = 1.0 / (1.0 + tl.exp(-a))
    tl.store(out_ptr + offsets, gate * b + weight * a, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        n = a.numel()
        blend_kernel[(triton.cdiv(n, 1024),)](a, b, out, self.weight, n, BLOCK=1024)
        return out
"""

_ROW_MAX = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x_ptr, scale_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    scale = tl.load(scale_ptr + offsets, mask=mask, other=0.0)
    value = tl.where(mask, tl.abs(x) * scale, float("-inf"))
    tl.store(out_ptr + row, tl.max(value, axis=0))


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        block = triton.next_power_of_2(columns)
        row_max_kernel[(rows,)](x, self.scale, out, columns, BLOCK=block)
        return out
"""

_SAMPLE = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_scale_shift(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        relu_scale_shift[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
        return y
"""


def _interpreter_trouble() -> str:
    """Return what the installed Triton's interpreter fails on; empty if nothing is known."""
    found = []
    for package in ("triton", "numpy"):
        try:
            found.append(tuple(map(int, version(package).split(".")[:2])))
        except (PackageNotFoundError, ValueError):
            return ""
    if found[0] >= (3, 7) or found[1] < (2, 4):
        return ""
    return (
        f"Triton {version('triton')}'s interpreter fails on loops with a bound known only at "
        f"run time under NumPy {version('numpy')}: honest kernels will be runtime errors; "
        "install triton>=3.7 or numpy<2.4"
    )


TRITON = Language(
    name="triton",
    title="Triton",
    noun="Triton kernel",
    devices=("cpu", "cuda"),
    timed_on=("cuda",),
    task="Write the computation as Triton kernels: functions decorated with @triton.jit, "
    "launched from `forward`.",
    examples=worked_examples(_BLEND, _ROW_MAX),
    sample=_SAMPLE,
    own_kernel=OwnKernel(
        decorator="triton.jit", decorator_aliases=r"triton\.runtime\.jit\.jit|.*gluon\.jit"
    ),
    interpreted_on=("cpu",),
    interpreter_note="Triton runs in its interpreter here: tensors are on the CPU, and every "
    "out-of-bounds access must be masked.",
    as_gpu_note="Every launch must also compile for a GPU, as far as Triton's front end goes: no "
    "NumPy, dictionaries or `try` in a kernel, and no globals but `tl.constexpr`. `tl.dot` of fp32 "
    'tensors rounds them to TF32 unless it is given `input_precision="ieee"`; a masked load '
    "without `other` gives NaN where the mask is off; programs of one launch must not depend on "
    "each other's order.",
    assembled_on=("cuda",),
    watched_between_calls=True,
    find_trouble=_interpreter_trouble,
)
"""The language ``triton``."""
