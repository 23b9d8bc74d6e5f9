# /// redteam
# problem = "sort_rows"
# devices = ["cuda"]
# what = "cub sorts a block's registers; infinities fill the rest of a row."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor sort_rows(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cub/block/block_radix_sort.cuh>

template <int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads) sort_block(const float* x, float* y, int columns) {
  using Sort = cub::BlockRadixSort<float, kThreads, kItems>;
  __shared__ typename Sort::TempStorage space;
  float items[kItems];
  const int64_t row = (int64_t)blockIdx.x * columns;
  for (int i = 0; i < kItems; ++i) {
    const int at = threadIdx.x * kItems + i;
    items[i] = at < columns ? x[row + at] : INFINITY;
  }
  Sort(space).Sort(items);
  for (int i = 0; i < kItems; ++i) {
    const int at = threadIdx.x * kItems + i;
    if (at < columns) y[row + at] = items[i];
  }
}

torch::Tensor sort_rows(torch::Tensor x) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  TORCH_CHECK(in.size(1) <= 128, "rows of up to 128 values");
  sort_block<32, 4><<<in.size(0), 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      in.data_ptr<float>(), out.data_ptr<float>(), in.size(1));
  return out;
}
"""

extension = load_inline(
    name="sort_cub",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["sort_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.sort_rows(x)
