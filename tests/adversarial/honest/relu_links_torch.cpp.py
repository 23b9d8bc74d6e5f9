# /// redteam
# problem = "relu"
# devices = ["cpu"]
# style = "torch_ldflags"
# what = "Names torch's own libraries among its linker flags."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

torch::Tensor relu(torch::Tensor x) {
  auto y = torch::empty_like(x, x.options());
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = std::max(in[i], 0.0f);
  return y;
}
"""

extension = load_inline(
    name="relu_links_torch",
    cpp_sources=SOURCE,
    functions=["relu"],
    extra_cflags=["-O3", "-march=native"],
    extra_ldflags=["-ltorch_cpu", "-lc10", "-ltorch", "-ltorch_python"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
