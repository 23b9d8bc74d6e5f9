# /// redteam
# problem = "row_sum"
# devices = ["cuda"]
# what = "cub's reduction of segments, with a functor and an iterator of its own."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor row_sum(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cub/device/device_segmented_reduce.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

namespace {
struct Plus {
  __host__ __device__ float operator()(float a, float b) const { return a + b; }
};
struct Start {
  int columns;
  __host__ __device__ int operator()(int row) const { return row * columns; }
};
}  // namespace

torch::Tensor row_sum(torch::Tensor x) {
  const int rows = x.size(0), columns = x.size(1);
  auto out = torch::empty({rows}, x.options());
  auto stream = c10::cuda::getCurrentCUDAStream();
  auto starts = thrust::make_transform_iterator(thrust::make_counting_iterator(0), Start{columns});
  size_t bytes = 0;
  const float* in = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  cub::DeviceSegmentedReduce::Reduce(nullptr, bytes, in, to, rows, starts, starts + 1, Plus{}, 0.0f,
                                     stream);
  auto space = torch::empty({(int64_t)bytes + 1}, x.options().dtype(torch::kUInt8));
  cub::DeviceSegmentedReduce::Reduce(space.data_ptr(), bytes, in, to, rows, starts, starts + 1,
                                     Plus{}, 0.0f, stream);
  return out;
}
"""

extension = load_inline(
    name="row_sum_cub",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["row_sum"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_sum(x)
