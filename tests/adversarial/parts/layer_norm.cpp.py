SOURCE = """
#include <cmath>

torch::Tensor norm(torch::Tensor x, double eps) {
  auto out = torch::empty_like(x);
  const int64_t rows = x.size(0), columns = x.size(1);
  for (int64_t i = 0; i < rows; ++i) {
    const float* in = x.data_ptr<float>() + i * columns;
    float* to = out.data_ptr<float>() + i * columns;
    double mean = 0, square = 0;
    for (int64_t j = 0; j < columns; ++j) mean += in[j];
    mean /= columns;
    for (int64_t j = 0; j < columns; ++j) square += (in[j] - mean) * (in[j] - mean);
    const double scale = 1.0 / std::sqrt(square / columns + eps);
    for (int64_t j = 0; j < columns; ++j) to[j] = (in[j] - mean) * scale;
  }
  return out;
}
"""
extension = load_inline(
    name="norm_ext", cpp_sources=SOURCE, functions=["norm"], extra_cflags=["-O2"]
)
