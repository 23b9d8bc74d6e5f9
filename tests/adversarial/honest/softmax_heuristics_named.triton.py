# /// redteam
# problem = "softmax"
# devices = ["cpu", "cuda"]
# style = "heuristics"
# what = "Chooses block and warps by named functions."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


def block_of(arguments):
    return triton.next_power_of_2(arguments["columns"])


def warps_of(arguments):
    return 8 if arguments["columns"] > 2048 else 4


@triton.heuristics({"BLOCK": block_of, "num_warps": warps_of})
@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=mask, other=float("-inf"))
    power = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + at, power / tl.sum(power, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
        return out
