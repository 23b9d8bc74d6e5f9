# /// redteam
# problem = "layernorm"
# devices = ["cpu"]
# what = "A pybind class keeps scratch memory between calls."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>
#include <memory>
#include <vector>

class Norm {
 public:
  explicit Norm(double eps) : eps_(eps) {}
  torch::Tensor operator()(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    auto in = x.contiguous();
    auto out = torch::empty_like(in);
    const int64_t n = in.size(-1), rows = in.numel() / n;
    const float *weight = w.data_ptr<float>(), *bias = b.data_ptr<float>();
    row_.resize(n);
    for (int64_t r = 0; r < rows; ++r) {
      const float* p = in.data_ptr<float>() + r * n;
      float* q = out.data_ptr<float>() + r * n;
      double mean = 0, var = 0;
      for (int64_t i = 0; i < n; ++i) mean += p[i];
      mean /= n;
      for (int64_t i = 0; i < n; ++i) {
        row_[i] = p[i] - mean;
        var += row_[i] * row_[i];
      }
      const double scale = 1.0 / std::sqrt(var / n + eps_);
      for (int64_t i = 0; i < n; ++i)
        q[i] = static_cast<float>(row_[i] * scale) * weight[i] + bias[i];
    }
    return out;
  }

 private:
  double eps_;
  std::vector<double> row_;
};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Norm, std::shared_ptr<Norm>>(m, "Norm")
      .def(py::init<double>())
      .def("__call__", &Norm::operator());
}
"""
extension = load_inline(name="layernorm_class_of_pybind", cpp_sources=SOURCE, functions=None)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.run = extension.Norm(self.norm.eps)

    def forward(self, x):
        return self.run(x, self.norm.weight, self.norm.bias)
