# /// redteam
# problem = "scaled_add"
# devices = ["cpu"]
# style = "avx2_dispatch"
# what = "Fused multiply-add where -march=native has it, a loop elsewhere."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

torch::Tensor scaled_add(torch::Tensor x, torch::Tensor y, double alpha) {
  auto a = x.contiguous(), b = y.contiguous();
  auto out = torch::empty_like(a);
  const float* pa = a.data_ptr<float>();
  const float* pb = b.data_ptr<float>();
  float* po = out.data_ptr<float>();
  const float factor = static_cast<float>(alpha);
  int64_t i = 0;
#if defined(__AVX2__) && defined(__FMA__)
  const __m256 f = _mm256_set1_ps(factor);
  for (; i + 8 <= a.numel(); i += 8) {
    _mm256_storeu_ps(po + i, _mm256_fmadd_ps(f, _mm256_loadu_ps(pb + i), _mm256_loadu_ps(pa + i)));
  }
#endif
  for (; i < a.numel(); ++i) po[i] = pa[i] + factor * pb[i];
  return out;
}
"""

extension = load_inline(
    name="scaled_add_ifdef_fma",
    cpp_sources=SOURCE,
    functions=["scaled_add"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        return extension.scaled_add(x, y, alpha)
