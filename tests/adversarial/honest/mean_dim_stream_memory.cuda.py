# /// redteam
# problem = "mean_dim"
# devices = ["cuda"]
# what = "Takes scratch memory from the stream's pool and gives it back."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor mean_middle(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void sum_parts(const float* x, float* parts, int middle, int last, int chunk) {
  const int column = threadIdx.x, outer = blockIdx.y, part = blockIdx.x;
  if (column >= last) return;
  float total = 0.0f;
  const int end = min(middle, (part + 1) * chunk);
  const float* in = x + (int64_t)outer * middle * last + column;
  for (int i = part * chunk; i < end; ++i) total += in[(int64_t)i * last];
  parts[((int64_t)outer * gridDim.x + part) * last + column] = total;
}

__global__ void join_parts(const float* parts, float* y, int count, int middle, int last) {
  const int column = threadIdx.x, outer = blockIdx.x;
  if (column >= last) return;
  float total = 0.0f;
  for (int i = 0; i < count; ++i) total += parts[((int64_t)outer * count + i) * last + column];
  y[(int64_t)outer * last + column] = total / middle;
}

torch::Tensor mean_middle(torch::Tensor x) {
  auto input = x.contiguous();
  const int outer = input.size(0), middle = input.size(1), last = input.size(2);
  TORCH_CHECK(last <= 1024, "the last dimension is too long: ", last);
  const int chunk = 32, count = (middle + chunk - 1) / chunk;
  auto y = torch::empty({outer, last}, input.options());
  auto stream = c10::cuda::getCurrentCUDAStream();
  float* parts = nullptr;
  C10_CUDA_CHECK(cudaMallocAsync(reinterpret_cast<void**>(&parts),
                                 sizeof(float) * outer * count * last, stream));
  sum_parts<<<dim3(count, outer), last, 0, stream>>>(input.data_ptr<float>(), parts, middle, last,
                                                     chunk);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  join_parts<<<outer, last, 0, stream>>>(parts, y.data_ptr<float>(), count, middle, last);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  C10_CUDA_CHECK(cudaFreeAsync(parts, stream));
  return y;
}
"""

extension = load_inline(
    name="mean_dim_stream_memory",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["mean_middle"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.mean_middle(x)
