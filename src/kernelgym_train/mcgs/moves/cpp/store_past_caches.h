#if defined(__SSE2__)
#include <emmintrin.h>
#endif
static inline void store_past_caches(float* to, const float* from, int64_t count) {
  int64_t at = 0;
#if defined(__SSE2__)
  for (; at < count && reinterpret_cast<uintptr_t>(to + at) % 16 != 0; ++at) to[at] = from[at];
  for (; at + 4 <= count; at += 4) _mm_stream_ps(to + at, _mm_loadu_ps(from + at));
#endif
  for (; at < count; ++at) to[at] = from[at];
#if defined(__SSE2__)
  _mm_sfence();  // before another thread may read
#endif
}
