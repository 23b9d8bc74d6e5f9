# /// redteam
# problem = "mean_dim"
# devices = ["cpu"]
# style = "avx2_dispatch"
# what = "Uses torch's own at::vec::Vectorized."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cpu/vec/vec.h>
#include <vector>

torch::Tensor mean_middle(torch::Tensor x) {
  using Vec = at::vec::Vectorized<double>;
  auto in = x.to(torch::kFloat64).contiguous();
  const int64_t batch = in.size(0), rows = in.size(1), columns = in.size(2);
  auto out = torch::empty({batch, columns}, x.options());
  std::vector<double> sums(columns);
  for (int64_t b = 0; b < batch; ++b) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t r = 0; r < rows; ++r) {
      const double* row = in.data_ptr<double>() + (b * rows + r) * columns;
      int64_t c = 0;
      for (; c + Vec::size() <= columns; c += Vec::size()) {
        (Vec::loadu(sums.data() + c) + Vec::loadu(row + c)).store(sums.data() + c);
      }
      for (; c < columns; ++c) sums[c] += row[c];
    }
    for (int64_t c = 0; c < columns; ++c) out.data_ptr<float>()[b * columns + c] = sums[c] / rows;
  }
  return out;
}
"""

extension = load_inline(
    name="mean_dim_at_vec",
    cpp_sources=SOURCE,
    functions=["mean_middle"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.mean_middle(x)
