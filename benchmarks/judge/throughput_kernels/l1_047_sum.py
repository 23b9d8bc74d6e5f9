import torch
import triton
import triton.language as tl


@triton.jit
def column_sums(x_ptr, y_ptr, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    batch = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = column < columns
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, rows, BM):
        row = start + tl.arange(0, BM)
        offsets = batch * rows * columns + row[:, None].to(tl.int64) * columns + column[None, :]
        total += tl.load(x_ptr + offsets, mask=inside[None, :] & (row[:, None] < rows), other=0.0)
    tl.store(y_ptr + batch * columns + column, tl.sum(total, axis=0), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        assert dim == 1

    def forward(self, x):
        batches, rows, columns = x.shape
        y = torch.empty(batches, 1, columns, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(columns, 128), batches)
        column_sums[grid](x, y, rows, columns, BM=32, BN=128)
        return y
