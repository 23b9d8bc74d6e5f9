# /// redteam
# problem = "row_sum"
# devices = ["cuda"]
# what = "NVRTC on torch's current stream, with atomics into zeros."
# ///
import torch
import torch.nn as nn

SOURCE = """
extern "C" __global__ void partial_sums(const float* x, float* out, int columns) {
  const int row = blockIdx.y;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = i < columns ? x[(long long)row * columns + i] : 0.0f;
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
  if (threadIdx.x % 32 == 0) atomicAdd(out + row, value);
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "partial_sums")
        rows, columns = x.shape
        out = torch.zeros(rows, device=x.device)
        grid = ((columns + 127) // 128, rows, 1)
        stream = torch.cuda.current_stream(x.device)
        self.kernel(grid, (128, 1, 1), [x, out, columns], stream=stream)
        return out
