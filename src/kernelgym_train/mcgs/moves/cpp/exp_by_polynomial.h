static inline float exp_by_polynomial(float x) {
  const float least = -87.0f, most = 88.0f;
  x = x > least ? x : least;
  x = x < most ? x : most;
  const float scaled = x * 1.44269504f;
  const int whole = static_cast<int>(scaled + (scaled < 0.0f ? -0.5f : 0.5f));
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float sum = 1.0f / 5040.0f;
  sum = sum * r + 1.0f / 720.0f;
  sum = sum * r + 1.0f / 120.0f;
  sum = sum * r + 1.0f / 24.0f;
  sum = sum * r + 1.0f / 6.0f;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const int bits = (whole + 127) << 23;
  float power;
  __builtin_memcpy(&power, &bits, sizeof(power));
  return sum * power;
}
