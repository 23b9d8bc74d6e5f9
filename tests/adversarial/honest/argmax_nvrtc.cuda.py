# /// redteam
# problem = "argmax"
# devices = ["cuda"]
# what = "NVRTC, with its source put together by an f-string and its build cached."
# ///
import functools

import torch
import torch.nn as nn

THREADS = 128


@functools.cache
def build(threads):
    source = f"""
extern "C" __global__ void argmax_rows(const float* x, long long* out, int columns) {{
  __shared__ float values[{threads}];
  __shared__ int places[{threads}];
  const float* in = x + (long long)blockIdx.x * columns;
  int best = 0;
  for (int i = threadIdx.x; i < columns; i += {threads}) {{
    if (in[i] > in[best] || (in[i] == in[best] && i < best)) best = i;
  }}
  values[threadIdx.x] = in[best];
  places[threadIdx.x] = best;
  for (int half = {threads} / 2; half > 0; half /= 2) {{
    __syncthreads();
    if (threadIdx.x < half) {{
      const float other = values[threadIdx.x + half];
      const int place = places[threadIdx.x + half];
      const bool tie = other == values[threadIdx.x] && place < places[threadIdx.x];
      if (other > values[threadIdx.x] || tie) {{
        values[threadIdx.x] = other;
        places[threadIdx.x] = place;
      }}
    }}
  }}
  if (threadIdx.x == 0) out[blockIdx.x] = places[0];
}}
"""
    return torch.cuda._compile_kernel(source, "argmax_rows")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, dtype=torch.int64, device=x.device)
        build(THREADS)(grid=(rows, 1, 1), block=(THREADS, 1, 1), args=[x, out, columns])
        return out
