# /// redteam
# problem = "add"
# devices = ["cuda"]
# what = "Uses two streams of torch's pool, joined by events on both sides."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor add(torch::Tensor x, torch::Tensor y);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void add_kernel(const float* x, const float* y, float* out, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + y[i];
}

torch::Tensor add(torch::Tensor x, torch::Tensor y) {
  auto a = x.contiguous();
  auto b = y.contiguous();
  auto out = torch::empty_like(a);
  const int64_t n = a.numel();
  auto current = c10::cuda::getCurrentCUDAStream();
  c10::cuda::CUDAStream sides[2] = {c10::cuda::getStreamFromPool(),
                                    c10::cuda::getStreamFromPool()};
  cudaEvent_t ready;
  C10_CUDA_CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
  C10_CUDA_CHECK(cudaEventRecord(ready, current));
  for (int side = 0; side < 2; ++side) {
    const int64_t begin = side * (n / 2), end = side == 0 ? n / 2 : n;
    C10_CUDA_CHECK(cudaStreamWaitEvent(sides[side], ready, 0));
    add_kernel<<<(end - begin + 255) / 256, 256, 0, sides[side]>>>(
        a.data_ptr<float>() + begin, b.data_ptr<float>() + begin, out.data_ptr<float>() + begin,
        end - begin);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    cudaEvent_t done;
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventRecord(done, sides[side]));
    C10_CUDA_CHECK(cudaStreamWaitEvent(current, done, 0));
    C10_CUDA_CHECK(cudaEventDestroy(done));
  }
  C10_CUDA_CHECK(cudaEventDestroy(ready));
  return out;
}
"""

extension = load_inline(
    name="add_joined_events",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["add"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.add(x, y)
