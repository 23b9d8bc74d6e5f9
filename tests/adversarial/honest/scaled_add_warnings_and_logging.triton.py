# /// redteam
# problem = "scaled_add"
# devices = ["cpu", "cuda"]
# what = "Filters warnings, logs, and measures how long its construction took."
# ///
import logging
import time
import warnings

import torch
import torch.nn as nn
import triton
import triton.language as tl

warnings.filterwarnings("ignore", category=UserWarning)
log = logging.getLogger(__name__)
logging.basicConfig(level=logging.INFO)


@triton.jit
def scaled_add(x_ptr, y_ptr, out_ptr, alpha, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + alpha * y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        started = time.perf_counter()
        super().__init__()
        log.info("constructed in %.6f s", time.perf_counter() - started)

    def forward(self, x, y, alpha):
        log.info("adding %s elements", f"{x.numel():,}")
        out = torch.empty_like(x)
        n = x.numel()
        scaled_add[(triton.cdiv(n, 4096),)](x, y, out, alpha, n, BLOCK=4096)
        return out
