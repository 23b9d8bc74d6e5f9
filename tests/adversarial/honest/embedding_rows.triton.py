# /// redteam
# problem = "embedding"
# devices = ["cpu", "cuda"]
# what = "Copies rows of the layer's own table."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_rows(index_ptr, table_ptr, out_ptr, count, FEATURES: tl.constexpr, ROWS: tl.constexpr):
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = place < count
    index = tl.load(index_ptr + place, mask=inside, other=0)
    features = tl.arange(0, FEATURES)
    row = tl.load(table_ptr + index[:, None] * FEATURES + features[None, :], mask=inside[:, None])
    tl.store(out_ptr + place[:, None] * FEATURES + features[None, :], row, mask=inside[:, None])


class ModelNew(nn.Module):
    def __init__(self, entries, features):
        super().__init__()
        self.embedding = nn.Embedding(entries, features)

    def forward(self, index):
        table = self.embedding.weight
        features = table.shape[1]
        out = torch.empty((*index.shape, features), dtype=table.dtype, device=index.device)
        count = index.numel()
        copy_rows[(triton.cdiv(count, 64),)](index, table, out, count, FEATURES=features, ROWS=64)
        return out
