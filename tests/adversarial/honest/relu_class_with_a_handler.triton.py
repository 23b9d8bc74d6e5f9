# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# what = "A class of tensors has its own kernel do the work of torch's operator."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


# /// part relu.triton.py


class Fast(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.relu.default:
            return relu(args[0].inner)
        plain = [arg.inner if isinstance(arg, Fast) else arg for arg in args]
        return func(*plain, **(kwargs or {}))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(Fast(x.contiguous()))
