# /// redteam
# problem = "pairwise"
# devices = ["cpu"]
# style = "openmp_pragmas"
# what = "Divides rows by omp_get_thread_num inside a parallel region."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>
#include <omp.h>

torch::Tensor pairwise(torch::Tensor x, torch::Tensor y) {
  auto a = x.contiguous(), b = y.contiguous();
  const int64_t n = a.size(0), m = b.size(0), d = a.size(1);
  auto out = torch::empty({n, m}, a.options());
  const float* pa = a.data_ptr<float>();
  const float* pb = b.data_ptr<float>();
  float* po = out.data_ptr<float>();
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), own = omp_get_thread_num();
    for (int64_t i = own; i < n; i += threads) {
      for (int64_t j = 0; j < m; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < d; ++k) {
          const double difference = pa[i * d + k] - pb[j * d + k];
          sum += difference * difference;
        }
        po[i * m + j] = std::sqrt(sum);
      }
    }
  }
  return out;
}
"""

extension = load_inline(
    name="pairwise_omp_get_threads",
    cpp_sources=SOURCE,
    functions=["pairwise"],
    extra_cflags=["-O2", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.pairwise(x, y)
