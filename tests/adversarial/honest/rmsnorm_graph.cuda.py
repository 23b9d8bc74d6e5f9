# /// redteam
# problem = "rmsnorm"
# devices = ["cuda"]
# what = "Replays a CUDA graph whose static input is refreshed in every call."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
void rmsnorm_into(torch::Tensor x, torch::Tensor weight, torch::Tensor y, double eps);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void rmsnorm_kernel(const float* x, const float* weight, float* y, int columns,
                               float eps) {
  __shared__ float parts[4];
  const float* in = x + (int64_t)blockIdx.x * columns;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 128) squares += in[i] * in[i];
  for (int s = 16; s > 0; s /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, s);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = squares;
  __syncthreads();
  const float root = sqrtf((parts[0] + parts[1] + parts[2] + parts[3]) / columns + eps);
  float* out = y + (int64_t)blockIdx.x * columns;
  for (int i = threadIdx.x; i < columns; i += 128) out[i] = in[i] / root * weight[i];
}

void rmsnorm_into(torch::Tensor x, torch::Tensor weight, torch::Tensor y, double eps) {
  rmsnorm_kernel<<<x.size(0), 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(),
      static_cast<int>(x.size(1)), static_cast<float>(eps));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""

extension = load_inline(
    name="rmsnorm_graph",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["rmsnorm_into"],
)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))
        self.graph = None

    def _capture(self, x):
        self.input = x.clone()
        self.output = torch.empty_like(x)
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            extension.rmsnorm_into(self.input, self.weight, self.output, self.eps)

    def forward(self, x):
        if self.graph is None or self.input.shape != x.shape:
            self._capture(x)
        self.input.copy_(x)
        self.graph.replay()
        return self.output.clone()
