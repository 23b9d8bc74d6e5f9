#include <torch/extension.h>
#include <algorithm>
#include <cmath>

torch::Tensor row_softmax(torch::Tensor x_in) {
  auto x_c = x_in.contiguous();
  const int64_t rows = x_c.size(0);
  const int64_t columns = x_c.size(1);
  auto out = torch::empty({rows, columns}, x_c.options());
  const float* x = x_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r) {
    float best = x[r * columns];
    for (int64_t c = 0; c < columns; ++c) {
      best = std::max(best, x[r * columns + c]);
    }
    float total = 0.0f;
    for (int64_t c = 0; c < columns; ++c) {
      total += std::exp(x[r * columns + c] - best);
    }
    for (int64_t c = 0; c < columns; ++c) {
      y[r * columns + c] = std::exp(x[r * columns + c] - best) / total;
    }
  }
  return out;
}
