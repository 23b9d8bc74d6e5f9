# /// redteam
# problem = "relu"
# devices = ["cpu"]
# what = "Shares its loop among threads with OpenMP."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

torch::Tensor relu(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const float* in = input.data_ptr<float>();
  float* out = y.data_ptr<float>();
  const int64_t n = input.numel();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; ++i) {
    out[i] = in[i] > 0.0f ? in[i] : 0.0f;
  }
  return y;
}
"""

extension = load_inline(
    name="relu_openmp",
    cpp_sources=SOURCE,
    functions=["relu"],
    extra_cflags=["-O3", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
