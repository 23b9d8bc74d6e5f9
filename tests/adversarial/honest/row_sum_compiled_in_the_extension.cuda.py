# /// redteam
# problem = "row_sum"
# devices = ["cuda"]
# what = "The extension compiles a kernel by NVRTC and launches it by the driver's interface."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor row_sum(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <nvrtc.h>

static CUfunction compiled(int columns) {
  static std::map<int, CUfunction> kernels;
  auto& kernel = kernels[columns];
  if (kernel) return kernel;
  const std::string text = R"(
extern "C" __global__ void sums_of_rows(const float* x, float* out) {
  float total = 0.0f;
  for (int i = threadIdx.x; i < COLUMNS; i += 32) total += x[(size_t)blockIdx.x * COLUMNS + i];
  for (int s = 16; s > 0; s /= 2) total += __shfl_xor_sync(0xffffffffu, total, s);
  if (threadIdx.x == 0) out[blockIdx.x] = total;
})";
  nvrtcProgram program;
  nvrtcCreateProgram(&program, text.c_str(), nullptr, 0, nullptr, nullptr);
  const std::string width = "-DCOLUMNS=" + std::to_string(columns);
  const char* options[] = {"-arch=sm_90", width.c_str()};
  TORCH_CHECK(nvrtcCompileProgram(program, 2, options) == NVRTC_SUCCESS, "NVRTC refused it");
  size_t bytes = 0;
  nvrtcGetCUBINSize(program, &bytes);
  std::string binary(bytes, 0);
  nvrtcGetCUBIN(program, binary.data());
  CUmodule module;
  TORCH_CHECK(cuModuleLoadData(&module, binary.data()) == CUDA_SUCCESS, "the module did not load");
  cuModuleGetFunction(&kernel, module, "sums_of_rows");
  return kernel;
}

torch::Tensor row_sum(torch::Tensor x) {
  auto out = torch::empty({x.size(0)}, x.options());
  const float* in = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  void* arguments[] = {&in, &to};
  cuLaunchKernel(compiled(x.size(1)), x.size(0), 1, 1, 32, 1, 1, 0,
                 c10::cuda::getCurrentCUDAStream(), arguments, nullptr);
  return out;
}
"""

extension = load_inline(
    name="row_sum_driver",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["row_sum"],
    extra_ldflags=["-lnvrtc", "-lcuda"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_sum(x)
