# /// redteam
# problem = "silu"
# devices = ["cpu"]
# style = "templates"
# what = "Applies a functor through a template on the scalar type."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

template <typename scalar_t>
struct Silu {
  scalar_t operator()(scalar_t v) const { return v / (scalar_t(1) + std::exp(-v)); }
};

template <typename scalar_t, typename Op>
void map(const scalar_t* in, scalar_t* out, int64_t n, Op op) {
  for (int64_t i = 0; i < n; ++i) out[i] = op(in[i]);
}

torch::Tensor silu(const torch::Tensor& input) {
  auto x = input.contiguous();
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "silu", [&] {
    map<scalar_t>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel(), Silu<scalar_t>{});
  });
  return y;
}
"""

extension = load_inline(
    name="silu_functor_template",
    cpp_sources=SOURCE,
    functions=["silu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.silu(x)
