# /// redteam
# problem = "linear_gelu"
# devices = ["cuda"]
# what = "The first call captures a graph of torch's addmm and a GELU of its own."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
void gelu_(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void gelu_kernel(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

void gelu_(torch::Tensor x) {
  const int n = x.numel();
  gelu_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), n);
}
"""

extension = load_inline(
    name="gelu_graph",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["gelu_"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.graph = None

    def _run(self, x):
        out = torch.addmm(self.linear.bias, x, self.linear.weight.t())
        extension.gelu_(out)
        return out

    def forward(self, x):
        if self.graph is None:
            self.x = x.clone()
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._run(self.x)
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = self._run(self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.out.clone()
