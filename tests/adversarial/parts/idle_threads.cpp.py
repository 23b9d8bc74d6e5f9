SPIN = """
#include <sched.h>
#include <atomic>
#include <chrono>
#include <thread>

static std::atomic<int64_t> last{0};
static int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}
void called() { last = now(); }

// Threads that rest while ModelNew is called often, and burn the cores when it is not.
void hog(int64_t threads, bool pinned) {
  called();
  if (pinned) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  for (int64_t i = 0; i < threads; ++i)
    std::thread([] {
      volatile double value = 1;
      for (;;) {
        if (now() - last > 3000000)
          for (int q = 0; q < 10000; ++q) value = value * 1.0000001;
        else
          std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
    }).detach();
}
"""
spin = load_inline(
    name="spin_ext", cpp_sources=SPIN, functions=["called", "hog"], extra_cflags=["-O2", "-pthread"]
)
