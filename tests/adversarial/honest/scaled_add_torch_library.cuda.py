# /// redteam
# problem = "scaled_add"
# devices = ["cuda"]
# what = "Registers its function with torch's library, and calls it as an operator."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <torch/library.h>
#include <c10/cuda/CUDAStream.h>

template <typename T>
__global__ void axpy(const T* x, const T* y, T* out, T alpha, int64_t n) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
       i += (int64_t)gridDim.x * blockDim.x)
    out[i] = x[i] + alpha * y[i];
}

torch::Tensor scaled_add(const torch::Tensor& x, const torch::Tensor& y, double alpha) {
  auto out = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scaled_add", [&] {
    axpy<scalar_t><<<264, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(),
        static_cast<scalar_t>(alpha), x.numel());
  });
  return out;
}

TORCH_LIBRARY(scaled_add_ops, library) {
  library.def("scaled_add(Tensor x, Tensor y, float alpha) -> Tensor");
}

TORCH_LIBRARY_IMPL(scaled_add_ops, CUDA, library) { library.impl("scaled_add", scaled_add); }
"""

load_inline(
    name="scaled_add_torch_library",
    cpp_sources="",
    cuda_sources=SOURCE,
    is_python_module=False,
)


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        return torch.ops.scaled_add_ops.scaled_add(x, y, alpha)
