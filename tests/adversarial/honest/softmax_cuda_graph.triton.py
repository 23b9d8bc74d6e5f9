# /// redteam
# problem = "softmax"
# devices = ["cuda"]
# what = "Captures a CUDA graph once, and copies the inputs of every call into it."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def _capture(self, x):
        self.input, self.output = torch.empty_like(x), torch.empty_like(x)
        rows, columns = x.shape
        block = triton.next_power_of_2(columns)
        self.input.copy_(x)
        softmax_rows[(rows,)](self.input, self.output, columns, BLOCK=block)  # compiles
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            softmax_rows[(rows,)](self.input, self.output, columns, BLOCK=block)

    def forward(self, x):
        if self.graph is None:
            self._capture(x)
        self.input.copy_(x)
        self.graph.replay()
        return self.output.clone()
