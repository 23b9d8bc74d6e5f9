# /// redteam
# problem = "softmax"
# devices = ["cpu"]
# style = "vector_scratch"
# what = "Keeps each row's exponentials in a std::vector<double>."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

torch::Tensor softmax(torch::Tensor x) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const int64_t columns = in.size(1);
  std::vector<double> scratch(columns);
  for (int64_t row = 0; row < in.size(0); ++row) {
    const float* p = in.data_ptr<float>() + row * columns;
    const double top = *std::max_element(p, p + columns);
    std::transform(p, p + columns, scratch.begin(), [top](float v) { return std::exp(v - top); });
    const double sum = std::accumulate(scratch.begin(), scratch.end(), 0.0);
    std::transform(scratch.begin(), scratch.end(), out.data_ptr<float>() + row * columns,
                   [sum](double v) { return static_cast<float>(v / sum); });
  }
  return out;
}
"""

extension = load_inline(
    name="softmax_vector_scratch",
    cpp_sources=SOURCE,
    functions=["softmax"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax(x)
