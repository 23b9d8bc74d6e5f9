"""Problems and kernels the judge's tests share."""

from kernelgym.rulesets import Limits
from kernelgym.types import Kernel, Problem

TIGHT = Limits(
    run_s=5.0, memory_bytes=1 << 29, output_bytes=1 << 20, file_bytes=1 << 24, open_files=64
)


def problem(forward, inputs, init="", arguments="x", init_inputs="", name="p"):
    """A problem whose Model runs `forward` on `inputs` (source text of both)."""
    constructor = f"    def __init__(self{', ' if init_inputs else ''}{init_inputs}):\n"
    constructor += "        super().__init__()\n" + "".join(
        f"        {line}\n" for line in init.splitlines()
    )
    return Problem(
        id=f"Test/{name}",
        suite="Test",
        level=1,
        name=name,
        source=(
            "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
            f"{constructor}"
            f"    def forward(self, {arguments}):\n"
            + "".join(f"        {line}\n" for line in forward.splitlines())
            + f"\n\ndef get_inputs():\n    return [{inputs}]\n\n\n"
            "def get_init_inputs():\n    return []\n"
        ),
    )


AFFINE = problem(
    "return torch.relu(x) * 2 + b",
    "torch.randn(37, 131), torch.randn(131)",
    arguments="x, b",
    name="affine",
)

TRITON_SOURCE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine(x, b, out, n, M: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask)
    bias = tl.load(b + offsets % M, mask=mask)
    tl.store(out + offsets, tl.maximum(value, 0.0) * 2 + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, b):
        out = torch.empty_like(x)
        n = x.numel()
        affine[(triton.cdiv(n, 2048),)](x, b, out, n, x.shape[1], BLOCK=2048)
        return out
"""

CPP_SOURCE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
torch::Tensor affine(torch::Tensor x, torch::Tensor b) {
  auto out = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  const float* bias = b.data_ptr<float>();
  float* to = out.data_ptr<float>();
  const int64_t rows = x.size(0), columns = x.size(1);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const float value = in[i * columns + j];
      to[i * columns + j] = (value > 0 ? value : 0) * 2 + bias[j];
    }
  return out;
}
"""
extension = load_inline(name="affine", cpp_sources=SOURCE, functions=["affine"],
                        extra_cflags=["-O2"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, b):
        return extension.affine(x, b)
'''

TRITON = Kernel(TRITON_SOURCE, "triton")
CPP = Kernel(CPP_SOURCE, "cpp")


def replaced(kernel, old, new):
    """The kernel with one piece of its source changed."""
    assert old in kernel.source, old
    return Kernel(kernel.source.replace(old, new), kernel.language)


def doing(body, kernel=TRITON, top=""):
    """The kernel with statements put at the start of `forward` (and of the module)."""
    start = "    def forward(self, x, b):\n"
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return Kernel(top + kernel.source.replace(start, start + lines), kernel.language)


def forward_only(body, arguments="x", constructor="", language="triton"):
    """A module without custom code: the rules about values apply to it all the same."""
    return Kernel(
        "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        + "".join(f"        {line}\n" for line in constructor.splitlines())
        + f"\n    def forward(self, {arguments}):\n"
        + "".join(f"        {line}\n" for line in body.splitlines()),
        language,
    )
