# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# what = "Labels its steps for a profiler, by names that look like operators."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


# /// part relu.triton.py


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.profiler.record_function("relu::prepare"):
            x = x.contiguous()
        with torch.profiler.record_function("relu::launch"):
            return relu(x)
