# /// redteam
# problem = "embedding"
# devices = ["cpu"]
# style = "raw_pointers"
# what = "Copies rows of the table with std::memcpy."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cstring>

torch::Tensor look_up(torch::Tensor index, torch::Tensor table) {
  auto where = index.contiguous();
  auto weight = table.contiguous();
  const int64_t features = weight.size(1);
  auto sizes = where.sizes().vec();
  sizes.push_back(features);
  auto out = torch::empty(sizes, weight.options());
  const int64_t* at = where.data_ptr<int64_t>();
  const char* from = static_cast<const char*>(weight.data_ptr());
  char* to = static_cast<char*>(out.data_ptr());
  const size_t bytes = features * weight.element_size();
  for (int64_t i = 0; i < where.numel(); ++i) {
    TORCH_CHECK_INDEX(at[i] >= 0 && at[i] < weight.size(0), "index ", at[i], " is out of range");
    std::memcpy(to + i * bytes, from + at[i] * bytes, bytes);
  }
  return out;
}
"""

extension = load_inline(
    name="embedding_memcpy_rows",
    cpp_sources=SOURCE,
    functions=["look_up"],
)


class ModelNew(nn.Module):
    def __init__(self, entries, features):
        super().__init__()
        self.embedding = nn.Embedding(entries, features)

    def forward(self, index):
        return extension.look_up(index, self.embedding.weight)
