# /// redteam
# problem = "transpose_copy"
# devices = ["cpu"]
# style = "openmp_pragmas"
# what = "Blocks of a transpose under omp parallel for collapse(2)."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#define BLOCK 32

torch::Tensor transpose(torch::Tensor x) {
  auto input = x.contiguous();
  const int rows = input.size(0), columns = input.size(1);
  auto out = torch::empty({columns, rows}, input.options());
  const float* __restrict__ in = input.data_ptr<float>();
  float* __restrict__ to = out.data_ptr<float>();
  #pragma omp parallel for collapse(2) schedule(dynamic)
  for (int r0 = 0; r0 < rows; r0 += BLOCK) {
    for (int c0 = 0; c0 < columns; c0 += BLOCK) {
      for (int c = c0; c < std::min(c0 + BLOCK, columns); ++c)
        for (int r = r0; r < std::min(r0 + BLOCK, rows); ++r)
          to[c * rows + r] = in[r * columns + c];
    }
  }
  return out;
}
"""

extension = load_inline(
    name="transpose_openmp_collapse",
    cpp_sources=SOURCE,
    functions=["transpose"],
    extra_cflags=["-O3", "-fopenmp"],
    extra_ldflags=["-lgomp"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.transpose(x)
