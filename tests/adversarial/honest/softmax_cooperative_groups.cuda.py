# /// redteam
# problem = "softmax"
# devices = ["cuda"]
# what = "Reduces in tiles of cooperative groups."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor softmax_rows(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void softmax_kernel(const float* x, float* y, int rows, int columns) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  const int row = blockIdx.x * tile.meta_group_size() + tile.meta_group_rank();
  if (row >= rows) return;
  const float* in = x + (int64_t)row * columns;
  float* out = y + (int64_t)row * columns;
  float top = -INFINITY;
  for (int i = tile.thread_rank(); i < columns; i += 32) top = fmaxf(top, in[i]);
  top = cg::reduce(tile, top, cg::greater<float>());
  float total = 0.0f;
  for (int i = tile.thread_rank(); i < columns; i += 32) total += expf(in[i] - top);
  total = cg::reduce(tile, total, cg::plus<float>());
  for (int i = tile.thread_rank(); i < columns; i += 32) out[i] = expf(in[i] - top) / total;
}

torch::Tensor softmax_rows(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const int rows = input.size(0), columns = input.size(1);
  softmax_kernel<<<(rows + 3) / 4, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      input.data_ptr<float>(), y.data_ptr<float>(), rows, columns);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

extension = load_inline(
    name="softmax_cooperative_groups",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["softmax_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax_rows(x)
