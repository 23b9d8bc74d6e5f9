# /// redteam
# problem = "scaled_add"
# devices = ["cuda"]
# what = "Compiles its kernel with NVRTC at the first call."
# ///
import torch
import torch.nn as nn

SOURCE = """
extern "C" __global__ void scaled_add(const float* x, const float* y, float* out, double alpha,
                                      int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + static_cast<float>(alpha) * y[i];
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, x, y, alpha):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "scaled_add")
        out = torch.empty_like(x)
        n = x.numel()
        self.kernel(((n + 255) // 256, 1, 1), (256, 1, 1), [x, y, out, float(alpha), n])
        return out
