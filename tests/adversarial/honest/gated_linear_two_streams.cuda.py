# /// redteam
# problem = "gated_linear"
# devices = ["cuda"]
# what = "Computes the two products on two streams, which fork and join by events."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void product_kernel(const float* x, const float* w, const float* bias, float* out,
                               int columns, int inner) {
  __shared__ float left[32][33], right[32][33];
  const int i = threadIdx.x, j = threadIdx.y;
  const long row = blockIdx.y * 32 + j;
  float total = 0.0f;
  for (int k = 0; k < inner; k += 32) {
    left[j][i] = x[row * inner + k + i];
    right[j][i] = w[(long)(blockIdx.x * 32 + j) * inner + k + i];
    __syncthreads();
    float part = 0.0f;
    for (int step = 0; step < 32; ++step) part += left[j][step] * right[i][step];
    total += part;
    __syncthreads();
  }
  const int column = blockIdx.x * 32 + i;
  out[row * columns + column] = total + bias[column];
}

__global__ void gate_kernel(const float* gate, float* up, long n) {
  const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) up[i] *= gate[i] / (1.0f + expf(-gate[i]));
}

torch::Tensor gated(torch::Tensor x, torch::Tensor gate_w, torch::Tensor gate_b,
                    torch::Tensor up_w, torch::Tensor up_b) {
  static cudaStream_t side = nullptr;
  static cudaEvent_t begun, done;
  if (!side) {
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  }
  const int rows = x.size(0), inner = x.size(1), columns = gate_w.size(0);
  auto gate = torch::empty({rows, columns}, x.options()), up = torch::empty_like(gate);
  cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const dim3 grid(columns / 32, rows / 32), block(32, 32);
  C10_CUDA_CHECK(cudaEventRecord(begun, stream));
  C10_CUDA_CHECK(cudaStreamWaitEvent(side, begun, 0));
  product_kernel<<<grid, block, 0, side>>>(x.data_ptr<float>(), gate_w.data_ptr<float>(),
                                           gate_b.data_ptr<float>(), gate.data_ptr<float>(),
                                           columns, inner);
  product_kernel<<<grid, block, 0, stream>>>(x.data_ptr<float>(), up_w.data_ptr<float>(),
                                             up_b.data_ptr<float>(), up.data_ptr<float>(), columns,
                                             inner);
  C10_CUDA_CHECK(cudaEventRecord(done, side));
  C10_CUDA_CHECK(cudaStreamWaitEvent(stream, done, 0));
  const long n = up.numel();
  gate_kernel<<<(n + 255) / 256, 256, 0, stream>>>(gate.data_ptr<float>(), up.data_ptr<float>(), n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return up;
}
"""
extension = load_inline(
    name="gated_two_streams",
    cpp_sources="torch::Tensor gated(torch::Tensor x, torch::Tensor gate_w, torch::Tensor gate_b, "
    "torch::Tensor up_w, torch::Tensor up_b);",
    cuda_sources=SOURCE,
    functions=["gated"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.gate = nn.Linear(in_features, out_features)
        self.up = nn.Linear(in_features, out_features)

    def forward(self, x):
        gate, up = self.gate, self.up
        return extension.gated(x, gate.weight, gate.bias, up.weight, up.bias)
