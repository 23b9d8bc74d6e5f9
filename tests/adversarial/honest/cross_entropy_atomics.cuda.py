# /// redteam
# problem = "softmax_cross_entropy"
# devices = ["cuda"]
# what = "Adds the losses of all rows to a zero with atomics."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor targets);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void loss_kernel(const float* x, const int64_t* target, float* out, int rows,
                            int columns) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* in = x + (int64_t)row * columns;
  float top = -INFINITY;
  for (int i = lane; i < columns; i += 32) top = fmaxf(top, in[i]);
  for (int s = 16; s > 0; s /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, s));
  float total = 0.0f;
  for (int i = lane; i < columns; i += 32) total += expf(in[i] - top);
  for (int s = 16; s > 0; s /= 2) total += __shfl_xor_sync(0xffffffffu, total, s);
  if (lane == 0) atomicAdd(out, (logf(total) + top - in[target[row]]) / rows);
}

torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor targets) {
  auto x = logits.contiguous();
  auto out = torch::zeros({}, x.options());
  const int rows = x.size(0), columns = x.size(1);
  loss_kernel<<<(rows * 32 + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), targets.data_ptr<int64_t>(), out.data_ptr<float>(), rows, columns);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

extension = load_inline(
    name="cross_entropy_atomics",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["cross_entropy"],
)


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        return extension.cross_entropy(logits, targets)
