# /// redteam
# problem = "cumsum"
# devices = ["cpu"]
# what = "A pool of threads that starts once, and waits by a condition."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

class Pool {
 public:
  Pool() : worker_([this] { loop(); }) {}
  ~Pool() {
    { std::lock_guard<std::mutex> l(m_); stop_ = true; }
    cv_.notify_all();
    worker_.join();
  }
  void run(std::function<void(int)> f) {
    { std::lock_guard<std::mutex> l(m_); job_ = f; busy_ = true; }
    cv_.notify_all();
    f(0);
    std::unique_lock<std::mutex> l(m_);
    done_.wait(l, [this] { return !busy_; });
  }

 private:
  void loop() {
    std::unique_lock<std::mutex> l(m_);
    while (true) {
      cv_.wait(l, [this] { return stop_ || busy_; });
      if (stop_) return;
      auto f = job_;
      l.unlock();
      f(1);
      l.lock();
      busy_ = false;
      done_.notify_one();
    }
  }
  std::mutex m_;
  std::condition_variable cv_, done_;
  std::function<void(int)> job_;
  bool stop_ = false, busy_ = false;
  std::thread worker_;
};

torch::Tensor run(torch::Tensor x) {
  static Pool pool;
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const int64_t n = in.size(-1), rows = in.numel() / n;
  const float* p = in.data_ptr<float>();
  float* q = out.data_ptr<float>();
  pool.run([=](int half) {
    for (int64_t r = half; r < rows; r += 2) {
      double total = 0;
      for (int64_t i = 0; i < n; ++i) q[r * n + i] = static_cast<float>(total += p[r * n + i]);
    }
  });
  return out;
}
"""
extension = load_inline(
    name="cumsum_pool_of_threads", cpp_sources=SOURCE, functions=["run"], extra_ldflags=["-pthread"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.run(x)
