# /// redteam
# problem = "softmax"
# devices = ["cpu", "cuda"]
# style = "device_properties"
# what = "A persistent kernel, with as many programs as the device has processors."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.runtime import driver


@triton.jit
def softmax_kernel(out, x, rows, columns, BLOCK: tl.constexpr):
    first, step = tl.program_id(0), tl.num_programs(0)
    at = tl.arange(0, BLOCK)
    keep = at < columns
    for row in tl.range(first, rows, step):
        v = tl.load(x + row * columns + at, mask=keep, other=-float("inf"))
        e = tl.exp(v - tl.max(v, 0))
        tl.store(out + row * columns + at, e / tl.sum(e, 0), mask=keep)


def softmax(x):
    rows, columns = x.shape
    index = torch.cuda.current_device()
    processors = torch.cuda.get_device_properties(index).multi_processor_count
    found = driver.active.utils.get_device_properties(index)["multiprocessor_count"]
    assert processors == found and torch.cuda.get_device_capability(x.device)[0] >= 7
    out = torch.empty((rows, columns), device="cuda", dtype=x.dtype)
    stream = torch.cuda.current_stream()
    block = triton.next_power_of_2(columns)
    with torch.cuda.stream(stream):
        softmax_kernel[(min(processors, rows),)](out, x.contiguous(), rows, columns, BLOCK=block)
    return out


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
