# /// redteam
# problem = "heavy_chain"
# devices = ["cuda"]
# what = "Python writes the kernel's steps and its name, one kernel for each vector width."
# ///
import string

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

STEPS = [
    "v * 1.5f",
    "v + 0.5f",
    "tanhf(v)",
    "v * 2.0f - 0.25f",
    "1.0f / (1.0f + expf(-v))",
    "v * 3.0f - 1.0f",
    "fabsf(v) + 0.125f",
    "sqrtf(v) * 1.25f",
    "sinf(v)",
    "v * v + 0.75f",
    "expf(-v)",
    "v * 4.0f - 0.5f",
    "fmaxf(v, 0.0f)",
]
KERNEL = string.Template("""
__global__ void $name(const float* __restrict__ in, float* __restrict__ out, int64_t n) {
  const int64_t start = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * $width;
#pragma unroll
  for (int j = 0; j < $width; ++j) {
    if (start + j >= n) return;
    float v = in[start + j];
$body
    out[start + j] = v;
  }
}
""")
BODY = "\n".join(f"    v = {step};" for step in STEPS)
NAMES = {width: f"chain_{len(STEPS)}_steps_by_{width}" for width in (1, 4)}
KERNELS = "".join(KERNEL.substitute(name=n, width=w, body=BODY) for w, n in NAMES.items())
SOURCE = f"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
{KERNELS}
torch::Tensor chain(torch::Tensor x) {{
  auto out = torch::empty_like(x);
  const int64_t n = x.numel();
  auto kernel = n % 4 ? {NAMES[1]} : {NAMES[4]};
  const int64_t threads = n % 4 ? n : n / 4;
  kernel<<<(threads + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}}
"""

extension = load_inline(
    name="written_by_python",
    cpp_sources="torch::Tensor chain(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["chain"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.chain(x)
