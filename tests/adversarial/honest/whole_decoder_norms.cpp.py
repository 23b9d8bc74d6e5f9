# /// redteam
# problem = "whole_decoder"
# devices = ["cpu"]
# style = "whole_model_parts"
# what = "Replaces a model's layer norms and activations by functions of an extension."
# ///
import torch
from torch.utils.cpp_extension import load_inline
from transformers import AutoModelForCausalLM

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor norm_rows(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const int64_t n = in.size(-1);
  const float* gamma = w.data_ptr<float>();
  const float* beta = b.data_ptr<float>();
  for (int64_t row = 0; row < in.numel() / n; ++row) {
    const float* p = in.data_ptr<float>() + row * n;
    float* o = out.data_ptr<float>() + row * n;
    double mean = 0.0, square = 0.0;
    for (int64_t i = 0; i < n; ++i) mean += p[i];
    mean /= n;
    for (int64_t i = 0; i < n; ++i) square += (p[i] - mean) * (p[i] - mean);
    const double scale = 1.0 / std::sqrt(square / n + eps);
    for (int64_t i = 0; i < n; ++i) o[i] = (p[i] - mean) * scale * gamma[i] + beta[i];
  }
  return out;
}

torch::Tensor relu_flat(torch::Tensor x) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const float* p = in.data_ptr<float>();
  float* o = out.data_ptr<float>();
  for (int64_t i = 0; i < in.numel(); ++i) o[i] = p[i] > 0.0f ? p[i] : 0.0f;
  return out;
}
"""
extension = load_inline("parts", cpp_sources=SOURCE, functions=["norm_rows", "relu_flat"])


class OwnNorm(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x):
        return extension.norm_rows(x, self.weight, self.bias, self.eps)


class OwnRelu(torch.nn.Module):
    def forward(self, x):
        return extension.relu_flat(x)


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
