"""Plain Triton and CUDA kernels that GPU searches start from, each with its problem."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym import Kernel, Problem, get_problem

__all__ = ["OWN_TASKS", "kernelbench_tasks"]

_HEAD = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""
_MATMUL = """

@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows[:, None] * sam + ks[None, :] * sak,
                    mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptr + ks[:, None] * sbk + cols[None, :] * sbn,
                    mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * scm + cols[None, :] * scn, acc.to(c_ptr.dtype.element_ty),
             mask=(rows[:, None] < M) & (cols[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]), triton.cdiv(N, META["BLOCK_N"]))
        matmul_kernel[grid](
            a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1),
            c.stride(0), c.stride(1), BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,
            num_warps=1, num_stages=1,
        )
        return c
"""
_SOFTMAX = """

@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    peak = -float("inf")
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        peak = tl.maximum(peak, tl.max(x, axis=0))
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        total += tl.sum(tl.exp(x - peak), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        y = tl.exp(x - peak) / total
        tl.store(y_ptr + row * n_cols + cols, y, mask=cols < n_cols)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=128, num_warps=4)
        return y
"""
_LINEAR_GELU = """

@triton.jit
def linear_gelu_kernel(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K,
                       BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid = tl.program_id(0)
    num_n = tl.cdiv(N, BLOCK_N)
    pid_m = pid // num_n
    pid_n = pid % num_n
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows[:, None] * K + ks[None, :],
                    mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        w = tl.load(w_ptr + cols[None, :] * K + ks[:, None],
                    mask=(cols[None, :] < N) & (ks[:, None] < K), other=0.0)
        acc += tl.dot(x, w, input_precision="ieee")
    acc += tl.load(b_ptr + cols, mask=cols < N, other=0.0)[None, :].to(tl.float32)
    acc = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))
    tl.store(y_ptr + rows[:, None] * N + cols[None, :], acc.to(y_ptr.dtype.element_ty),
             mask=(rows[:, None] < M) & (cols[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, weight, bias):
        M, K = x.shape
        N = weight.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = lambda META: (
            triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),
        )
        linear_gelu_kernel[grid](x, weight, bias, y, M, N, K, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
        return y
"""
_RMS_NORM = """

@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        total += x * x
    scale = tl.rsqrt(tl.sum(total, axis=0) / n_cols + 1e-6)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        w = tl.load(w_ptr + cols, mask=cols < n_cols, other=0.0)
        tl.store(y_ptr + row * n_cols + cols, x * scale * w, mask=cols < n_cols)


class ModelNew(nn.Module):
    def forward(self, x, weight):
        y = torch.empty_like(x)
        rms_norm_kernel[(x.shape[0],)](x, weight, y, x.shape[1], BLOCK=256)
        return y
"""
_KB_RMS_NORM = """

@triton.jit
def rms_norm_kernel(x_ptr, y_ptr, features, inner, eps, BLOCK: tl.constexpr):
    batch = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base = batch.to(tl.int64) * features * inner
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for f in range(0, features):
        x = tl.load(x_ptr + base + f * inner + at, mask=at < inner, other=0.0)
        total += x * x
    root = tl.sqrt(total / features + eps)
    for f in range(0, features):
        x = tl.load(x_ptr + base + f * inner + at, mask=at < inner, other=0.0)
        tl.store(y_ptr + base + f * inner + at, x / root, mask=at < inner)


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        y = torch.empty_like(x)
        batch, features = x.shape[0], x.shape[1]
        inner = x.numel() // (batch * features)
        grid = (triton.cdiv(inner, 128), batch)
        rms_norm_kernel[grid](x, y, features, inner, self.eps, BLOCK=128)
        return y
"""
_KB_LAYER_NORM = """

@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    mean = tl.sum(total, axis=0) / n_cols
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        x = tl.where(cols < n_cols, x - mean, 0.0)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        w = tl.load(w_ptr + cols, mask=cols < n_cols, other=0.0)
        b = tl.load(b_ptr + cols, mask=cols < n_cols, other=0.0)
        tl.store(y_ptr + row * n_cols + cols, (x - mean) * scale * w + b, mask=cols < n_cols)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x):
        y = torch.empty_like(x)
        n_cols = self.ln.weight.numel()
        layer_norm_kernel[(x.numel() // n_cols,)](
            x, self.ln.weight, self.ln.bias, y, n_cols, self.ln.eps, BLOCK=1024
        )
        return y
"""
_KB_SCALED_RESIDUAL = """

@triton.jit
def scaled_residual_kernel(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, factor,
                           BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows[:, None] * K + ks[None, :],
                    mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        w = tl.load(w_ptr + cols[None, :] * K + ks[:, None],
                    mask=(cols[None, :] < N) & (ks[:, None] < K), other=0.0)
        acc += tl.dot(x, w, input_precision="ieee")
    acc += tl.load(b_ptr + cols, mask=cols < N, other=0.0)[None, :]
    tl.store(y_ptr + rows[:, None] * N + cols[None, :], acc * factor + acc,
             mask=(rows[:, None] < M) & (cols[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        M, K = x.shape
        N = self.matmul.weight.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
        scaled_residual_kernel[grid](
            x, self.matmul.weight, self.matmul.bias, y, M, N, K, self.scaling_factor,
            BLOCK_M=32, BLOCK_N=32, BLOCK_K=32,
        )
        return y
"""
_CUDA_MATMUL = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor product(torch::Tensor a, torch::Tensor b);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void product_kernel(const float* a, const float* b, float* c, int M, int N, int K) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  int col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < M && col < N) {
    float acc = 0.0f;
    for (int k = 0; k < K; ++k) acc += a[row * K + k] * b[k * N + col];
    c[row * N + col] = acc;
  }
}

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
  const int M = a.size(0), K = a.size(1), N = b.size(1);
  auto c = torch::empty({M, N}, a.options());
  dim3 block(16, 16);
  dim3 grid((M + 15) / 16, (N + 15) / 16);
  product_kernel<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
      a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
  return c;
}
"""
extension = load_inline(
    name="product", cpp_sources=declaration, cuda_sources=source, functions=["product"]
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.product(a, b)
'''
_CUDA_SOFTMAX = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor softmax_rows(torch::Tensor x);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void softmax_kernel(const float* x, float* y, int rows, int cols) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) {
    float peak = -INFINITY, sum = 0.0f;
    for (int c = 0; c < cols; ++c) peak = fmaxf(peak, x[row * cols + c]);
    for (int c = 0; c < cols; ++c) sum += expf(x[row * cols + c] - peak);
    for (int c = 0; c < cols; ++c) y[row * cols + c] = expf(x[row * cols + c] - peak) / sum;
  }
}

torch::Tensor softmax_rows(torch::Tensor x) {
  const int rows = x.size(0), cols = x.size(1);
  auto y = torch::empty_like(x);
  softmax_kernel<<<(rows + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), rows, cols);
  return y;
}
"""
extension = load_inline(
    name="softmax_rows",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["softmax_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax_rows(x)
'''
_PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, {names}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def _task(
    name: str, text: str, names: str, result: str, inputs: str, language: str = "triton"
) -> tuple[Problem, Kernel]:
    source = _PROBLEM.format(names=names, result=result, inputs=inputs)
    problem = Problem(f"benchmark/{name}", "benchmark", 1, name, source)
    return problem, Kernel((_HEAD if language == "triton" else "") + text, language)


_PRODUCT = "torch.randn(4096, 4096{0}), torch.randn(4096, 4096{0})"
_HALF = ", dtype=torch.float16"
_LINEAR = (
    "torch.randn(8192, 1024, dtype=torch.float16), "
    "torch.randn(4096, 1024, dtype=torch.float16) / 32, torch.randn(4096, dtype=torch.float16)"
)
_RMS = "x * torch.rsqrt(x.pow(2).mean(dim=1, keepdim=True) + 1e-6) * weight"
OWN_TASKS: Mapping[str, tuple[Problem, Kernel]] = MappingProxyType(
    {
        "matmul_fp16": _task("matmul_fp16", _MATMUL, "a, b", "a @ b", _PRODUCT.format(_HALF)),
        "matmul_fp32": _task("matmul_fp32", _MATMUL, "a, b", "a @ b", _PRODUCT.format("")),
        "softmax": _task(
            "softmax", _SOFTMAX, "x", "torch.softmax(x, dim=1)", "torch.randn(16384, 8192)"
        ),
        "linear_gelu": _task(
            "linear_gelu",
            _LINEAR_GELU,
            "x, weight, bias",
            "nn.functional.gelu(nn.functional.linear(x, weight, bias))",
            _LINEAR,
        ),
        "rms_norm": _task(
            "rms_norm", _RMS_NORM, "x, weight", _RMS, "torch.randn(8192, 4096), torch.randn(4096)"
        ),
        "matmul_cuda": _task(
            *("matmul_cuda", _CUDA_MATMUL, "a, b", "a @ b"),
            *("torch.randn(2048, 2048), torch.randn(2048, 2048)", "cuda"),
        ),
        "softmax_cuda": _task(
            *("softmax_cuda", _CUDA_SOFTMAX, "x", "torch.softmax(x, dim=1)"),
            *("torch.randn(16384, 4096)", "cuda"),
        ),
    }
)
"""(problem, start) by name."""


def kernelbench_tasks() -> dict[str, tuple[Problem, Kernel]]:
    """Return tasks of KernelBench, whose problems must be on this machine."""
    texts = {"L1/36": _KB_RMS_NORM, "L1/40": _KB_LAYER_NORM, "L2/40": _KB_SCALED_RESIDUAL}
    return {
        f"KernelBench/{name}": (get_problem(f"KernelBench/{name}"), Kernel(_HEAD + text, "triton"))
        for name, text in texts.items()
    }
