# /// redteam
# problem = "gather"
# devices = ["cuda"]
# what = "Binds its function itself, in one CUDA source."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATION = """
#include <torch/extension.h>

torch::Tensor gather_rows(torch::Tensor x, torch::Tensor index);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("gather_rows", &gather_rows);
}
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void gather_kernel(const float* x, const int64_t* index, float* out, int64_t n,
                              int wide, int narrow) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i / narrow * wide + index[i]];
}

torch::Tensor gather_rows(torch::Tensor x, torch::Tensor index) {
  auto input = x.contiguous();
  auto places = index.contiguous();
  auto out = torch::empty(places.sizes(), input.options());
  const int64_t n = places.numel();
  gather_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      input.data_ptr<float>(), places.data_ptr<int64_t>(), out.data_ptr<float>(), n,
      static_cast<int>(input.size(1)), static_cast<int>(places.size(1)));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

extension = load_inline(
    name="gather_own_binding", cpp_sources=[DECLARATION], cuda_sources=[SOURCE], with_cuda=True
)


class ModelNew(nn.Module):
    def forward(self, x, index):
        return extension.gather_rows(x, index)
