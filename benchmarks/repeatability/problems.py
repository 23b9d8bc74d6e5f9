"""What the repeatability benchmark times: one problem in four sizes, and a kernel for it.

Every step adds a bias, clamps at zero and scales: three passes over memory in the reference, one in
the kernel. More steps, not larger tensors, make the longer ones, so that inputs stay cheap to draw.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelgym.types import Job, Kernel, Problem

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, b):
        for _ in range({steps}):
            x = torch.relu(x + b) * 0.9
        return x


def get_inputs():
    return [torch.randn({rows}, {columns}), torch.randn({columns})]


def get_init_inputs():
    return []
"""

TRITON = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def step(x, b, out, n, M: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask) + tl.load(b + offsets % M, mask=mask)
    tl.store(out + offsets, tl.maximum(value, 0.0) * 0.9, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, b):
        n, columns = x.numel(), x.shape[1]
        buffers = [torch.empty_like(x) for _ in range(min(2, {steps}))]
        for index in range({steps}):
            out = buffers[index % 2]
            step[(triton.cdiv(n, 2048),)](x, b, out, n, M=columns, BLOCK=2048)
            x = out
        return x
"""

CPP = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
torch::Tensor steps(torch::Tensor x, torch::Tensor b, int64_t count) {{
  auto out = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  const float* bias = b.data_ptr<float>();
  float* to = out.data_ptr<float>();
  const int64_t rows = x.size(0), columns = x.size(1);
  for (int64_t s = 0; s < count; ++s) {{
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {{
        const float value = from[i * columns + j] + bias[j];
        to[i * columns + j] = (value > 0 ? value : 0) * 0.9f;
      }}
    from = to;
  }}
  return out;
}}
"""
extension = load_inline(name="steps", cpp_sources=SOURCE, functions=["steps"],
                        extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x, b):
        return extension.steps(x, b, {steps})
'''


@dataclass(frozen=True)
class Size:
    """One length of kernel, and what gives about that on each kind of device."""

    name: str
    rows: int
    steps: int
    cpu_rows: int
    cpu_steps: int
    goal_cv: float
    """What the coefficient of variation of the speedup is to stay below."""
    columns: int = 4096

    def job(self, on_cpu: bool) -> Job:
        """Return the problem and its kernel."""
        rows, steps = (self.cpu_rows, self.cpu_steps) if on_cpu else (self.rows, self.steps)
        source = PROBLEM.format(rows=rows, columns=self.columns, steps=steps)
        problem = Problem(f"Repeatability/L1/{self.name}", "Repeatability", 1, self.name, source)
        kernel = CPP if on_cpu else TRITON
        return Job(problem, Kernel(kernel.format(steps=steps), "cpp" if on_cpu else "triton"))


# On an H200, whose memory moves 4.3 TB/s: 84 MB, then 872 MB a step.
SIZES = {
    size.name: size
    for size in (
        Size("20us", 2560, 1, 16, 1, 0.01),
        Size("200us", 26624, 1, 128, 1, 0.003),
        Size("2ms", 26624, 10, 128, 10, 0.003),
        Size("20ms", 26624, 100, 128, 100, 0.003),
    )
}
