SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cublas_v2.h>

__global__ void spin_kernel(float* out, int cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
  if (cycles < 0) out[0] = 0.0f;
}

__global__ void double_kernel(float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] *= 2.0f;
}

torch::Tensor product(torch::Tensor x, torch::Tensor y) {
  const int m = x.size(0), k = x.size(1), n = y.size(1);
  auto out = torch::empty({m, n}, x.options());
  const float half = 0.5f, zero = 0.0f;
  const auto current = at::cuda::getCurrentCUDAStream();
  static const auto side = c10::cuda::getStreamFromPool();
  at::cuda::CUDAEvent begun, ended;
  begun.record(current);
  begun.block(side);
  spin_kernel<<<BLOCKS, THREADS, 0, side>>>(out.data_ptr<float>(), CYCLES);
  ended.record(side);
  cublasSgemm(at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &half,
              y.data_ptr<float>(), n, x.data_ptr<float>(), k, &zero, out.data_ptr<float>(), n);
  ended.block(current);
  double_kernel<<<(m * n + 255) / 256, 256, 0, current>>>(out.data_ptr<float>(), m * n);
  return out;
}
"""
extension = load_inline(
    name="spins_ext",
    cpp_sources="torch::Tensor product(torch::Tensor x, torch::Tensor y);",
    cuda_sources=SIZES + SOURCE,
    functions=["product"],
    extra_ldflags=["-lcublas"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.product(x, y)
