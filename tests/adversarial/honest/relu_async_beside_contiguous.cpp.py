# /// redteam
# problem = "relu"
# devices = ["cpu"]
# style = "thread_beside_torch"
# what = "Uses std::async for half of the work and torch's operators around it."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <future>

static void relu_part(const float* in, float* out, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) out[i] = in[i] < 0.f ? 0.f : in[i];
}

torch::Tensor relu(torch::Tensor x) {
  auto flat = x.reshape({-1}).contiguous();
  auto out = torch::empty_like(flat);
  const int64_t n = flat.numel();
  auto later = std::async(std::launch::async, relu_part, flat.data_ptr<float>(),
                          out.data_ptr<float>(), n / 2, n);
  relu_part(flat.data_ptr<float>(), out.data_ptr<float>(), 0, n / 2);
  later.get();
  return out.view(x.sizes());
}
"""

extension = load_inline(
    name="relu_async_beside_contiguous",
    cpp_sources=SOURCE,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
