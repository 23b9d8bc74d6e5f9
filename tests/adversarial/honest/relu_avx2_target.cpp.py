# /// redteam
# problem = "relu"
# devices = ["cpu"]
# style = "avx2_dispatch"
# what = "AVX2 under a target attribute, chosen at run time."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static void relu_plain(const float* in, float* out, int64_t begin, int64_t n) {
  for (int64_t i = begin; i < n; ++i) out[i] = in[i] > 0 ? in[i] : 0;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static int64_t relu_avx2(const float* in, float* out, int64_t n) {
  const __m256 zero = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_max_ps(_mm256_loadu_ps(in + i), zero));
  }
  return i;
}
#endif

torch::Tensor relu(torch::Tensor x) {
  auto input = x.contiguous();
  auto out = torch::empty_like(input);
  int64_t done = 0;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    done = relu_avx2(input.data_ptr<float>(), out.data_ptr<float>(), input.numel());
  }
#endif
  relu_plain(input.data_ptr<float>(), out.data_ptr<float>(), done, input.numel());
  return out;
}
"""

extension = load_inline(
    name="relu_avx2_target",
    cpp_sources=SOURCE,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
