# /// redteam
# problem = "transpose_copy"
# devices = ["cpu", "cuda"]
# style = "descriptors_in_kernel"
# what = "Loads tiles and stores them transposed, through descriptors."
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
def transpose_kernel(x_ptr, out_ptr, rows, columns, TILE: tl.constexpr):
    x = tl.make_tensor_descriptor(
        x_ptr, shape=[rows, columns], strides=[columns, 1], block_shape=[TILE, TILE]
    )
    out = tl.make_tensor_descriptor(
        out_ptr, shape=[columns, rows], strides=[rows, 1], block_shape=[TILE, TILE]
    )
    row, column = tl.program_id(0) * TILE, tl.program_id(1) * TILE
    tile = tl.load_tensor_descriptor(x, [row, column])
    tl.store_tensor_descriptor(out, [column, row], tl.trans(tile))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty((columns, rows), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(rows, 64), triton.cdiv(columns, 64))
        transpose_kernel[grid](x, out, rows, columns, TILE=64)
        return out
