CUDA = """
#include <torch/extension.h>

__global__ void copy_kernel(const float* in, float* out, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}

torch::Tensor duplicate(torch::Tensor x) {
  x = x.contiguous();
  auto out = torch::empty_like(x);
  long n = x.numel();
  copy_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""
extension = load_inline(
    name="copy_ext",
    cpp_sources="torch::Tensor duplicate(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["duplicate"],
)


def copy(x):
    return extension.duplicate(x)
