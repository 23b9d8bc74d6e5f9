# /// redteam
# problem = "whole_decoder"
# devices = ["cpu", "cuda"]
# style = "whole_model_parts"
# what = "Replaces a model's layer norms and activations, and leaves products to torch."
# ///
import torch
import triton
import triton.language as tl
from transformers import AutoModelForCausalLM


@triton.jit
def norm_rows(x_ptr, w_ptr, b_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + row * n + at, mask=inside, other=0.0)
    mean = tl.sum(x, 0) / n
    centred = tl.where(inside, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / n + eps)
    w = tl.load(w_ptr + at, mask=inside, other=0.0)
    b = tl.load(b_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + row * n + at, centred * scale * w + b, mask=inside)


@triton.jit
def relu_flat(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.maximum(x, 0.0), mask=at < n)


class OwnNorm(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        norm_rows[(x.numel() // n,)](
            x, self.weight, self.bias, y, n, self.eps, triton.next_power_of_2(n)
        )
        return y


class OwnRelu(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_flat[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1024)
        return y


class ModelNew(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = AutoModelForCausalLM.from_config(config).eval()
        decoder = self.model.model.decoder
        decoder.final_layer_norm = OwnNorm(decoder.final_layer_norm)
        for layer in decoder.layers:
            layer.self_attn_layer_norm = OwnNorm(layer.self_attn_layer_norm)
            layer.final_layer_norm = OwnNorm(layer.final_layer_norm)
            layer.activation_fn = OwnRelu()

    def forward(self, x):
        return self.model(x).logits
