"""Judge one kernel: is it correct, and how much faster than the reference?

Run it with `python examples/01_one_kernel.py`; it needs a C++ compiler and takes some seconds.
"""

from kernelgym import Kernel, LocalEvaluator, Problem

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0

def get_inputs():
    return [torch.randn(500, 1000)]

def get_init_inputs():
    return []
"""

KERNEL = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor relu_scale_shift(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  const int64_t n = x.numel();
  for (int64_t i = 0; i < n; ++i) out[i] = (in[i] > 0 ? in[i] : 0) * 2 + 1;
  return y;
}
"""

extension = load_inline(
    name="relu_scale_shift", cpp_sources=source, functions=["relu_scale_shift"],
    extra_cflags=["-O3", "-march=native"],
)

class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu_scale_shift(x)
'''


def main() -> None:
    problem = Problem("example/relu", "example", 1, "relu_scale_shift", REFERENCE)
    with LocalEvaluator() as evaluator:
        right = evaluator.evaluate(problem, Kernel(KERNEL, "cpp"))
        wrong = evaluator.evaluate(problem, Kernel(KERNEL.replace("* 2 + 1", "* 2"), "cpp"))
    print(f"right kernel: {right.status}, {right.message}")
    print(f"  speedup {right.speedup:.2f}x (at least {right.speedup_low:.2f}x)")
    print(f"  ran in {right.isolation}, repeat it with seed {right.seed}")
    print(f"wrong kernel: {wrong.status}, {wrong.message}")


if __name__ == "__main__":
    main()
