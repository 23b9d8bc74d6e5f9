DECLARATIONS = """
void keep_(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void keep_kernel(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 1.0000001f;
}

void keep_(torch::Tensor x) {
  const int n = x.numel();
  keep_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), n);
}
"""
