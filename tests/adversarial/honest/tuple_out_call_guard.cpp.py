# /// redteam
# problem = "tuple_out"
# devices = ["cpu"]
# what = "binds a function with a call guard and a keyword, returns a tuple, lets a NaN win"
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <tuple>
struct Best { float value; int64_t place; };
static Best best_of(const float* row, int64_t n) {
  Best found{row[0], 0};
  for (int64_t i = 1; i < n; ++i)
    if (row[i] > found.value || (row[i] != row[i] && found.value == found.value))
      found = {row[i], i};
  return found;
}
std::tuple<torch::Tensor, torch::Tensor> maxima(torch::Tensor x) {
  x = x.contiguous();
  auto values = x.new_empty({x.size(0)});
  auto places = torch::empty({x.size(0)}, x.options().dtype(torch::kInt64));
  for (int64_t r = 0; r < x.size(0); ++r) {
    auto found = best_of(x.data_ptr<float>() + r * x.size(1), x.size(1));
    values.data_ptr<float>()[r] = found.value;
    places.data_ptr<int64_t>()[r] = found.place;
  }
  return {values, places};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("maxima", &maxima, "greatest value of each row", py::arg("x"),
        py::call_guard<py::gil_scoped_release>());
}
"""
extension = load_inline(name="maxima_ext", cpp_sources=SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        return tuple(extension.maxima(x=x))
