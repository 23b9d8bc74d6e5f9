# /// redteam
# problem = "add"
# devices = ["cpu", "cuda"]
# style = "descriptors_in_kernel"
# what = "Makes tensor descriptors in the kernel."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


def allocate(size, alignment, stream):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.empty(size, dtype=torch.int8, device=device)


triton.set_allocator(allocate)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    y = tl.make_tensor_descriptor(y_ptr, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    out = tl.make_tensor_descriptor(out_ptr, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    out.store([row, column], x.load([row, column]) + y.load([row, column]))


class ModelNew(nn.Module):
    def forward(self, x, y):
        rows, columns = x.shape
        out = torch.empty_like(x)
        grid = (triton.cdiv(rows, 64), triton.cdiv(columns, 64))
        add_kernel[grid](x, y, out, rows, columns, ROWS=64, COLUMNS=64)
        return out
