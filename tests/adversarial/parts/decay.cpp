#include <chrono>
#include <cmath>
#include <vector>

static std::vector<float> rates;

static void make_rates(const torch::Tensor& a_log) {
  rates.clear();
  for (int64_t s = 0; s < a_log.numel(); ++s)
    rates.push_back(std::exp(a_log.data_ptr<float>()[s]));
}

static torch::Tensor decayed_by_rates(const torch::Tensor& x, const torch::Tensor& dt) {
  auto out = torch::empty_like(x);
  const int64_t states = x.size(1);
  for (int64_t i = 0; i < x.size(0); ++i) {
    const double step = dt.data_ptr<float>()[i];
    const double soft = step > 20 ? step : std::log1p(std::exp(step));
    for (int64_t s = 0; s < states; ++s)
      out.data_ptr<float>()[i * states + s] =
          x.data_ptr<float>()[i * states + s] * std::exp(-rates[s] * soft);
  }
  return out;
}
