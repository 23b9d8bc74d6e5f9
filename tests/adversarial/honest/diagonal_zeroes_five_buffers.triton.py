# /// redteam
# problem = "diagonal"
# style = "persistent outputs"
# devices = ["cpu", "cuda"]
# what = "Zeroes one of five buffers in every call before it writes the diagonals."
# ///
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def diagonal_kernel(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < width
    x = tl.load(x_ptr + row * width + offsets, mask=mask)
    tl.store(y_ptr + row * width * width + offsets * (width + 1), x, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.results = []
        self.turn = 0

    def forward(self, x):
        rows, width = x.shape
        if len(self.results) < 5:
            self.results.append(x.new_empty(rows, width, width))
        self.turn += 1
        y = self.results[self.turn % len(self.results)].zero_()
        diagonal_kernel[(rows,)](x, y, width, BLOCK=triton.next_power_of_2(width))
        return y
