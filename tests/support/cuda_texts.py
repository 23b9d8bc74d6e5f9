"""CUDA texts that moves change, each with inputs and what it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

_GUARDED = """
__global__ void gelu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = x[i];
    y[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
  }
}
extern "C" void run(const float* x, float* y, int n) {
  gelu<<<(n + 127) / 128, 128>>>(x, y, n);
}
"""
_LEAVING = """
#define BLOCK 64
__global__ void scaled(const float* __restrict__ a, const float* b, float* out, int n) {
  const int i = threadIdx.x + blockIdx.x * BLOCK;
  if (i >= n) return;
  out[i] = a[i] * 2.0f + b[i % 7] + i;
}
extern "C" void run(const float* a, const float* b, float* out, int n) {
  const int blocks = (n + BLOCK - 1) / BLOCK;
  scaled<<<blocks, BLOCK>>>(a, b, out, n);
}
"""
_MATMUL = """
__global__ void product(const float* A, const float* B, const float* bias, float* C,
                        int M, int N, int K) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  int col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < M && col < N) {
    float acc = 0.0f;
    for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[col * K + k];
    float v = acc + bias[col];
    C[row * N + col] = v > 0.0f ? v : 0.0f;
  }
}
extern "C" void run(const float* A, const float* B, const float* bias, float* C,
                    int M, int N, int K) {
  dim3 block(16, 16);
  dim3 grid((M + 15) / 16, (N + 15) / 16);
  product<<<grid, block>>>(A, B, bias, C, M, N, K);
}
"""
_TILED = """
constexpr int TILE = 8;
__global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || col >= N) return;
  float acc = 0;
  for (int k = 0; k < K; k++) { acc = acc + A[row * K + k] * B[k * N + col]; }
  C[row * N + col] = acc;
}
extern "C" void run(const float* A, const float* B, float* C, int M, int N, int K) {
  dim3 block(TILE, TILE);
  dim3 grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
  product<<<grid, block>>>(A, B, C, M, N, K);
}
"""
_TOTAL = """
__global__ void total(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = x[i];
    atomicAdd(out, v * v);
  }
}
extern "C" void run(const float* x, float* out, int n) {
  const int threads = 128;
  total<<<(n + threads - 1) / threads, threads>>>(x, out, n);
}
"""
_ROWS = """
__global__ void softmax(const float* x, float* y, int rows, int cols) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) {
    float peak = -INFINITY, sum = 0.0f;
    for (int c = 0; c < cols; ++c) peak = fmaxf(peak, x[row * cols + c]);
    for (int c = 0; c < cols; ++c) sum += expf(x[row * cols + c] - peak);
    for (int c = 0; c < cols; ++c) y[row * cols + c] = expf(x[row * cols + c] - peak) / sum;
  }
}
extern "C" void run(const float* x, float* y, int rows, int cols) {
  softmax<<<(rows + 31) / 32, 32>>>(x, y, rows, cols);
}
"""
_NORM = """
__global__ void norm(const float* x, const float* w, float* y, float* sums, int rows, int cols) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float total = 0.0f;
  for (int c = 0; c < cols; ++c) {
    const float v = x[row * cols + c];
    total = total + v * v;
  }
  const float scale = rsqrtf(total / cols + 1e-6f);
  for (int c = 0; c < cols; ++c) y[row * cols + c] = x[row * cols + c] * scale * w[c];
}
extern "C" void run(const float* x, const float* w, float* y, int rows, int cols) {
  norm<<<(rows + 63) / 64, 64>>>(x, w, y, nullptr, rows, cols);
}
"""


@dataclass(frozen=True)
class CudaCase:
    """A text, its inputs before the output, the output's shape, and the numbers after it."""

    text: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    numbers: tuple[int, ...]
    right: Callable[..., Array]


def _softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def _norm(x: Array, w: Array) -> Array:
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w


def _gelu(x: Array) -> Array:
    from math import erf

    return 0.5 * x * (1 + np.vectorize(erf)(x * 0.70710678))


def _scaled(a: Array, b: Array) -> Array:
    at = np.arange(a.size)
    return a * 2 + b[at % 7] + at


CASES = {
    "gelu": CudaCase(_GUARDED, ((1003,),), (1003,), (1003,), _gelu),
    "scaled": CudaCase(_LEAVING, ((514,), (7,)), (514,), (514,), _scaled),
    "linear": CudaCase(
        _MATMUL,
        ((37, 45), (50, 45), (50,)),
        (37, 50),
        (37, 50, 45),
        lambda a, b, bias: np.maximum(a @ b.T + bias, 0),
    ),
    "product": CudaCase(_TILED, ((33, 40), (40, 70)), (33, 70), (33, 70, 40), lambda a, b: a @ b),
    "total": CudaCase(_TOTAL, ((1000,),), (1,), (1000,), lambda x: (x * x).sum(keepdims=True)),
    "norm": CudaCase(_NORM, ((70, 50), (50,)), (70, 50), (70, 50), _norm),
    "softmax": CudaCase(_ROWS, ((40, 33),), (40, 33), (40, 33), _softmax),
}


def kernel_source(text: str) -> str:
    """Return a module that builds a text."""
    return f'''import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = r"""{text}"""
extension = load_inline(name="k", cpp_sources="void run();", cuda_sources=source, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, *given):
        return extension.run(*given)
'''
