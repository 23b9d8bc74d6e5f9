"""Rows in the columns of public archives, written here: nothing is taken from the archives."""

from __future__ import annotations

from typing import Any

_KERNEL = """\
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) * factor, mask=inside)


class {name}New(nn.Module):
    def __init__(self, factor, bias=0.0):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        out = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), self.factor, BLOCK=64)
        return out
"""
_REFERENCE = '''\
import torch
from torch import nn


class {name}(nn.Module):
    """{name} scales."""

    def __init__(self, factor, bias=0.0):
        super({name}, self).__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def get_inputs():
    return [torch.rand([4, 4])]


def get_init_inputs():
    return [{given}]
'''


def kernelbook_row(name: str = "Scaler", given: str = "[], {'factor': 3.0}", **more: Any) -> dict:
    """Return a row of KernelBook's columns whose kernel can run."""
    return {
        "entry_point": name,
        "original_triton_code": "",
        "python_code": _REFERENCE.format(name=name, given=given),
        "triton_code": _KERNEL.format(name=name),
        "repo_name": "somebody/some",
        "module_name": name,
        "synthetic": False,
        "uuid": 17,
        "licenses": ["MIT"],
        "stars": 3,
        "sha": "abc123",
        "repo_link": "https://example.org/somebody/some",
    } | more


def sakana_row(number: int = 19, **more: Any) -> dict:
    """Return a row of Sakana's columns: a rectified tensor."""
    module = (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n\n"
        "    def forward(self, x):\n        return torch.relu(x)\n\n\n"
        "def get_inputs():\n    return [torch.randn(8, 16)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    functional = (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
        "def module_fn(x: torch.Tensor) -> torch.Tensor:\n    return F.relu(x)\n\n\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n\n"
        "    def forward(self, x, fn=module_fn):\n        return fn(x)\n\n\n"
        "def get_inputs():\n    return [torch.randn(8, 16)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    code = (
        "#include <torch/extension.h>\n"
        "__global__ void relu(const float* x, float* out, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) out[i] = x[i] > 0.f ? x[i] : 0.f;\n}\n"
        "torch::Tensor forward(torch::Tensor x) {\n"
        "  auto out = torch::empty_like(x);\n"
        "  int n = x.numel();\n"
        "  relu<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);\n"
        "  return out;\n}\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }\n'
    )
    return {
        "Op_Name": f"{number}_ReLU",
        "Level_ID": 1,
        "Task_ID": number,
        "Kernel_Name": f"{number}_relu_base",
        "PyTorch_Code_Module": module,
        "PyTorch_Code_Functional": functional,
        "CUDA_Code": code,
        "Correct": True,
        "Max_Diff": 0.0,
        "CUDA_Speedup_Native": 150.0,
    } | more
