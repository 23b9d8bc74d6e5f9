# /// redteam
# problem = "tuple_out"
# devices = ["cuda"]
# what = "Finds values and places on two streams that fork and join by events."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def values_kernel(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(out + row, tl.max(value, 0))


@triton.jit
def places_kernel(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(out + row, tl.argmax(value, 0).to(tl.int64))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream()
            self.fork, self.join = torch.cuda.Event(), torch.cuda.Event()
        rows, columns = x.shape
        block = triton.next_power_of_2(columns)
        values = torch.empty(rows, dtype=x.dtype, device=x.device)
        places = torch.empty(rows, dtype=torch.int64, device=x.device)
        main = torch.cuda.current_stream()
        self.fork.record(main)
        self.side.wait_event(self.fork)
        with torch.cuda.stream(self.side):
            places_kernel[(rows,)](x, places, columns, BLOCK=block)
            self.join.record(self.side)
        values_kernel[(rows,)](x, values, columns, BLOCK=block)
        main.wait_event(self.join)
        places.record_stream(self.side)
        return values, places
