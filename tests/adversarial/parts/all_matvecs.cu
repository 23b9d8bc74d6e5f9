struct Table {
  int count;
  const float* x[1024];
  float* out[1024];
};

__device__ float silu(float value) { return value / (1.0f + expf(-value)); }

__device__ void one_column(const float* x, const float* w, const float* b, float* out, int inner,
                           int column) {
  const float* row = w + (long)column * inner;
  float total = 0.0f;
  for (int k = threadIdx.x % 32; k < inner; k += 32) total += row[k] * x[k];
  for (int s = 16; s > 0; s /= 2) total += __shfl_xor_sync(0xffffffffu, total, s);
  if (threadIdx.x % 32 == 0) out[column] = silu(total + b[column]);
}

__global__ void all_kernel(const Table* table, const float* w, const float* b, int inner) {
  __shared__ float left[16][65], right[16][65];
  __shared__ const float* from[64];
  __shared__ float* to[64];
  const int count = table->count, i = threadIdx.x % 16, j = threadIdx.x / 16;
  const int first = blockIdx.y * 64;
  if (first >= count) return;
  if (threadIdx.x < 64) {
    const int call = min(first + (int)threadIdx.x, count - 1);
    from[threadIdx.x] = table->x[call];
    to[threadIdx.x] = table->out[call];
  }
  __syncthreads();
  float total[4][4] = {};
  for (int k = 0; k < inner; k += 16) {
    for (int row = j; row < 64; row += 16) {
      left[i][row] = from[row][k + i];
      right[i][row] = w[(long)(blockIdx.x * 64 + row) * inner + k + i];
    }
    __syncthreads();
    float part[4][4] = {};
    for (int step = 0; step < 16; ++step)
      for (int a = 0; a < 4; ++a)
        for (int c = 0; c < 4; ++c) part[a][c] += left[step][j + 16 * a] * right[step][i + 16 * c];
    for (int a = 0; a < 4; ++a)
      for (int c = 0; c < 4; ++c) total[a][c] += part[a][c];
    __syncthreads();
  }
  for (int a = 0; a < 4; ++a)
    for (int c = 0; c < 4; ++c) {
      const int call = j + 16 * a, column = blockIdx.x * 64 + i + 16 * c;
      if (first + call < count) to[call][column] = silu(total[a][c] + b[column]);
    }
}
