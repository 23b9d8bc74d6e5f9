# /// redteam
# problem = "state_decay"
# devices = ["cuda"]
# style = "structured_state"
# what = "Reads the rates' logarithms from the parameter on every call."
# ///

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>

__global__ void decay_kernel(
    const float* x, const float* dt, const float* a_log, float* out, int rows, int states) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * states) return;
  int s = i % states;
  float step = dt[i / states];
  step = step > 20.0f ? step : log1pf(expf(step));
  out[i] = x[i] * expf(-expf(a_log[s]) * step);
}

torch::Tensor decayed(torch::Tensor x, torch::Tensor dt, torch::Tensor a_log) {
  auto out = torch::empty_like(x);
  int rows = x.size(0), states = x.size(1);
  decay_kernel<<<(rows * states + 255) / 256, 256>>>(
      x.data_ptr<float>(), dt.data_ptr<float>(), a_log.data_ptr<float>(), out.data_ptr<float>(),
      rows, states);
  return out;
}
"""
extension = load_inline(
    name="decay_ext",
    cpp_sources="torch::Tensor decayed(torch::Tensor x, torch::Tensor dt, torch::Tensor a_log);",
    cuda_sources=CUDA,
    functions=["decayed"],
)


class ModelNew(nn.Module):
    def __init__(self, states):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.arange(1, states + 1, dtype=torch.float32)))

    def forward(self, x, dt):
        return extension.decayed(x.contiguous(), dt.contiguous(), self.A_log)
