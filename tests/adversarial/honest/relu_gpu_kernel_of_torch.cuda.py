# /// redteam
# problem = "relu"
# devices = ["cuda"]
# what = "Instantiates torch's elementwise template with a lambda of its own."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor relu(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/cuda/Loops.cuh>

torch::Tensor relu(torch::Tensor x) {
  auto out = torch::empty_like(x);
  auto iterator = at::TensorIterator::unary_op(out, x);
  at::native::gpu_kernel(iterator, [] GPU_LAMBDA(float value) -> float {
    return value > 0.0f ? value : 0.0f;
  });
  return out;
}
"""

extension = load_inline(
    name="relu_loops",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["relu"],
    extra_cuda_cflags=["--extended-lambda"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
