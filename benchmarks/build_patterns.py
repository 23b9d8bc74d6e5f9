"""Ways in which CUDA and C++ extensions are written, for `build_times.py`: name, sources, call.

Every one makes ``f(x)``, which doubles what is positive in a matrix of floats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["PATTERNS", "Pattern"]

DECLARATION = "torch::Tensor f(torch::Tensor x);"
KERNEL = """
__global__ void twice_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.f) * 2.f;
}
"""
HOST = """
torch::Tensor f(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::empty_like(x);
  const int n = x.numel();
  twice_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""
TYPED = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

template <typename T>
__global__ void twice_kernel(const T* __restrict__ x, T* __restrict__ y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > T(0) ? x[i] * T(2) : T(0);
}

torch::Tensor f(torch::Tensor x) {
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto input = x.contiguous();
  auto y = torch::zeros({x.size(0), x.size(1)}, x.options());
  const int n = x.numel();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "twice", [&] {
    twice_kernel<scalar_t><<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""
HALF = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>

__global__ void twice_kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const bool positive = __hgt(__float2half(x[i]), __float2half(0.f)) ||
                        __bfloat162float(__float2bfloat16(x[i])) > 0.f;
  y[i] = positive ? x[i] * 2.f : 0.f;
}
"""
CUB = """
#include <cub/cub.cuh>

__global__ void twice_kernel(const float* x, float* y, int n) {
  using Load = cub::BlockLoad<float, 256, 1>;
  using Store = cub::BlockStore<float, 256, 1>;
  float values[1];
  const int start = blockIdx.x * 256;
  Load().Load(x + start, values, n - start, 0.f);
  values[0] = fmaxf(values[0], 0.f) * 2.f;
  Store().Store(y + start, values, n - start);
}
"""
THRUST = """
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/transform.h>

struct Twice {
  __device__ float operator()(float x) const { return fmaxf(x, 0.f) * 2.f; }
};

torch::Tensor f(torch::Tensor x) {
  auto y = torch::empty_like(x);
  thrust::transform(thrust::device, x.data_ptr<float>(), x.data_ptr<float>() + x.numel(),
                    y.data_ptr<float>(), Twice());
  return y;
}
"""
BLAS = """
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>

torch::Tensor f(torch::Tensor x) {
  auto y = x.clamp_min(0);
  const float two = 2.f;
  cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
  cublasSscal(handle, static_cast<int>(y.numel()), &two, y.data_ptr<float>(), 1);
  return y;
}
"""
CPP = """
#include <torch/extension.h>

torch::Tensor f(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const float* from = input.data_ptr<float>();
  float* to = y.data_ptr<float>();
  for (int64_t i = 0; i < input.numel(); ++i) to[i] = from[i] > 0 ? from[i] * 2 : 0;
  return y;
}
"""
BINDING = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f, "twice relu"); }\n'
EXTENSION = "#include <torch/extension.h>\n"


@dataclass(frozen=True, slots=True)
class Pattern:
    """What `load_inline` is given, beside the function's name."""

    cuda: str = ""
    cpp: str = DECLARATION
    binds_itself: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    def request(self, mark: str) -> dict[str, Any]:
        """Return the arguments of a build that nobody has asked for; `mark` is a comment."""
        return {
            "name": "twice",
            "cpp_sources": [self.cpp if self.cuda else f"{self.cpp}\n// {mark}\n"],
            "cuda_sources": [f"{self.cuda}\n// {mark}\n"] if self.cuda else [],
            "functions": None if self.binds_itself else {"f": "f"},
            **self.more,
        }


PATTERNS = {
    "cuda: tensor in, tensor out": Pattern(KERNEL + HOST),
    "cuda: stream, guard, dispatch by type": Pattern(TYPED),
    "cuda: half, bfloat16, mma": Pattern(HALF + HOST),
    "cuda: cub": Pattern(CUB + HOST),
    "cuda: thrust": Pattern(THRUST),
    "cuda: cuBLAS' handle": Pattern(BLAS, more={"ldflags": ["-lcublas"]}),
    "cuda: binds itself": Pattern(EXTENSION + KERNEL + HOST + BINDING, "", True),
    "cuda: tensor, -O3 --use_fast_math": Pattern(
        KERNEL + HOST, more={"cuda_cflags": ["-O3", "--use_fast_math"], "cflags": ["-O3"]}
    ),
    "cpp: tensor in, tensor out": Pattern(cpp=CPP),
    "cpp: binds itself": Pattern(cpp=CPP + BINDING, binds_itself=True),
}
