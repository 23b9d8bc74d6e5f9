# /// redteam
# problem = "row_sum"
# devices = ["cuda"]
# what = "NVRTC; the kernel's name is put together from its constants."
# ///
import functools

import torch
import torch.nn as nn

TEMPLATE = """
extern "C" __global__ void NAME(const float* x, float* out, int columns) {
  __shared__ float parts[THREADS];
  const float* in = x + (long long)blockIdx.x * columns;
  float total = 0.0f;
  for (int i = threadIdx.x; i < columns; i += THREADS) total += in[i];
  parts[threadIdx.x] = total;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = parts[0];
}
"""


@functools.cache
def build(operation, threads):
    name = f"{operation}_of_{threads}_threads"
    source = TEMPLATE.replace("NAME", name).replace("THREADS", str(threads))
    return torch.cuda._compile_kernel(source, name)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        threads = 256 if columns >= 256 else 64
        kernel = build("row_sum", threads)
        kernel(grid=(rows, 1, 1), block=(threads, 1, 1), args=[x, out, columns])
        return out
