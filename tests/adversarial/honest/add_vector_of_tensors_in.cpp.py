# /// redteam
# problem = "add"
# devices = ["cpu"]
# style = "tensor_lists"
# what = "Takes a std::vector of tensors and sums them."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <vector>

torch::Tensor add_all(std::vector<torch::Tensor> inputs) {
  TORCH_CHECK(!inputs.empty(), "nothing to add");
  auto out = torch::zeros_like(inputs[0]);
  float* to = out.data_ptr<float>();
  for (const auto& input : inputs) {
    auto x = input.contiguous();
    const float* in = x.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] += in[i];
  }
  return out;
}
"""

extension = load_inline(
    name="add_vector_of_tensors_in",
    cpp_sources=SOURCE,
    functions=["add_all"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.add_all([x, y])
