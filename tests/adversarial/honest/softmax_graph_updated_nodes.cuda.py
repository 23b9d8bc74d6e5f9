# /// redteam
# problem = "softmax"
# devices = ["cuda"]
# what = "Keeps a graph of its own, and gives its node the addresses of each call."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void softmax_kernel(const float* x, float* out, int columns) {
  const float* in = x + (long)blockIdx.x * columns;
  float* to = out + (long)blockIdx.x * columns;
  float top = -INFINITY, total = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 32) top = fmaxf(top, in[i]);
  for (int s = 16; s > 0; s /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, s));
  for (int i = threadIdx.x; i < columns; i += 32) total += expf(in[i] - top);
  for (int s = 16; s > 0; s /= 2) total += __shfl_xor_sync(0xffffffffu, total, s);
  for (int i = threadIdx.x; i < columns; i += 32) to[i] = expf(in[i] - top) / total;
}

torch::Tensor softmax(torch::Tensor x) {
  static cudaGraph_t graph = nullptr;
  static cudaGraphExec_t ready = nullptr;
  static cudaGraphNode_t node;
  auto out = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  int columns = x.size(1);
  void* arguments[] = {&in, &to, &columns};
  cudaKernelNodeParams params = {};
  params.func = reinterpret_cast<void*>(softmax_kernel);
  params.gridDim = dim3(x.size(0));
  params.blockDim = dim3(32);
  params.kernelParams = arguments;
  if (!ready) {
    C10_CUDA_CHECK(cudaGraphCreate(&graph, 0));
    C10_CUDA_CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    C10_CUDA_CHECK(cudaGraphInstantiate(&ready, graph, 0));
  }
  const auto stream = c10::cuda::getCurrentCUDAStream();
  cudaStreamCaptureStatus status;
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  if (status != cudaStreamCaptureStatusNone) {
    softmax_kernel<<<x.size(0), 32, 0, stream>>>(in, to, columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
  }
  C10_CUDA_CHECK(cudaGraphExecKernelNodeSetParams(ready, node, &params));
  C10_CUDA_CHECK(cudaGraphLaunch(ready, stream));
  return out;
}
"""
extension = load_inline(
    name="updated_nodes_ext",
    cpp_sources="torch::Tensor softmax(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["softmax"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax(x.contiguous())
