# /// redteam
# problem = "softmax"
# devices = ["cuda"]
# what = "Macros paste the names of its kernels together, one for each width of a block."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor softmax_rows(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(type, width) JOIN(rows, type, width)
#define DEFINE(type, width)                                                               \\
  __global__ void NAME(type, width)(const type* x, type* y, int columns) {                \\
    __shared__ type parts[width];                                                         \\
    const type* in = x + (int64_t)blockIdx.x * columns;                                   \\
    type* out = y + (int64_t)blockIdx.x * columns;                                        \\
    type most = -INFINITY, total = 0;                                                     \\
    for (int i = threadIdx.x; i < columns; i += width) most = fmaxf(most, in[i]);         \\
    parts[threadIdx.x] = most;                                                            \\
    for (int half = width / 2; half > 0; half /= 2) {                                     \\
      __syncthreads();                                                                    \\
      if (threadIdx.x < half)                                                             \\
        parts[threadIdx.x] = fmaxf(parts[threadIdx.x], parts[threadIdx.x + half]);        \\
    }                                                                                     \\
    __syncthreads();                                                                      \\
    most = parts[0];                                                                      \\
    __syncthreads();                                                                      \\
    for (int i = threadIdx.x; i < columns; i += width) total += expf(in[i] - most);       \\
    parts[threadIdx.x] = total;                                                           \\
    for (int half = width / 2; half > 0; half /= 2) {                                     \\
      __syncthreads();                                                                    \\
      if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];            \\
    }                                                                                     \\
    __syncthreads();                                                                      \\
    for (int i = threadIdx.x; i < columns; i += width)                                    \\
      out[i] = expf(in[i] - most) / parts[0];                                             \\
  }

DEFINE(float, 64)
DEFINE(float, 256)

torch::Tensor softmax_rows(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int rows = x.size(0), columns = x.size(1);
  auto stream = c10::cuda::getCurrentCUDAStream();
  if (columns < 128)
    NAME(float, 64)<<<rows, 64, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), columns);
  else
    NAME(float, 256)<<<rows, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), columns);
  return y;
}
"""

extension = load_inline(
    name="softmax_macros",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["softmax_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax_rows(x)
