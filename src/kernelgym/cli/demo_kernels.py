"""Hand-written kernels for the demo: a gated norm of ours, and KernelBench's vanilla RNN.

Each is kept in its repaired form; the broken form differs by a slip that people make. None
contains anything of a reference's source: weights carry the names that the judge matches by.
"""

from __future__ import annotations

from kernelgym.cli.scripted import Draft
from kernelgym.types import Kernel

__all__ = ["GATED_NORM", "gated_norm_drafts", "rnn_drafts"]

GATED_NORM = '''\
import torch
import torch.nn as nn


class Model(nn.Module):
    """A root-mean-square norm of the rows, gated by a second input."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x, gate):
        scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
        return x * scale * self.weight * torch.sigmoid(gate)


def get_inputs():
    return [torch.randn(250, 1000), torch.randn(250, 1000)]


def get_init_inputs():
    return [1000]
'''
"""A problem in KernelBench's format, for the demo's own folder."""

_NORM_MODULE = """

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x, gate):
        return gated_norm(x, gate, self.weight)
"""

_NORM_TRITON = (
    """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated_norm_kernel(x_ptr, gate_ptr, weight_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + row * width + column, mask=inside, other=0.0)
    gate = tl.load(gate_ptr + row * width + column, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / width + 1e-6)
    tl.store(y_ptr + row * width + column, x * scale * weight * tl.sigmoid(gate), mask=inside)


def gated_norm(x, gate, weight):
    y = torch.empty_like(x)
    rows, width = x.shape
    gated_norm_kernel[(rows,)](
        x, gate, weight, y, width, BLOCK=triton.next_power_of_2(width)
    )
    return y
"""
    + _NORM_MODULE
)

_NORM_CPP = (
    '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>

torch::Tensor gated_norm(torch::Tensor x, torch::Tensor gate, torch::Tensor weight) {
  auto y = torch::empty_like(x);
  const int64_t rows = x.size(0), width = x.size(1);
  const float* xs = x.data_ptr<float>();
  const float* gates = gate.data_ptr<float>();
  const float* w = weight.data_ptr<float>();
  float* ys = y.data_ptr<float>();
  #pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = xs + row * width;
    const float* g = gates + row * width;
    float* out = ys + row * width;
    float squares = 0.0f;
    #pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < width; ++i) squares += in[i] * in[i];
    const float scale = 1.0f / std::sqrt(squares / width + 1e-6f);
    #pragma omp simd
    for (int64_t i = 0; i < width; ++i)
      out[i] = in[i] * scale * w[i] / (1.0f + std::exp(std::min(-g[i], 80.0f)));
  }
  return y;
}
"""

extension = load_inline(
    name="gated_norm",
    cpp_sources=source,
    functions=["gated_norm"],
    extra_cflags=["-O3", "-march=native", "-fopenmp", "-ffast-math", "-fno-finite-math-only"],
    extra_ldflags=["-fopenmp"],
)
gated_norm = extension.gated_norm
'''
    + _NORM_MODULE
)

_RNN_MODULE = """

class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)

    def forward(self, x, h0):
        return rnn(x, h0, self.i2h.weight, self.i2h.bias, self.h2o.weight, self.h2o.bias)
"""

_RNN_CPP = (
    '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
#include <vector>

// y[r][c] = bias[c] + sum_k x[r][k] w[c][k], four rows by two columns at a time; a row of w is
// used for all rows of a block while it is near.
static void linear(const float* x, const float* w, const float* bias, float* y, int64_t rows,
                   int64_t columns, int64_t depth, int64_t w_stride) {
  constexpr int64_t block = 32;
  #pragma omp parallel for
  for (int64_t first = 0; first < rows; first += block)
    for (int64_t j = 0; j < columns; j += 2)
      for (int64_t r = first; r < std::min(first + block, rows); r += 4) {
        const float *a = x + r * depth, *b = a + depth, *c = b + depth, *d = c + depth;
        const float *u = w + j * w_stride, *v = u + w_stride;
        float au = 0, av = 0, bu = 0, bv = 0, cu = 0, cv = 0, du = 0, dv = 0;
        #pragma omp simd reduction(+ : au, av, bu, bv, cu, cv, du, dv)
        for (int64_t k = 0; k < depth; ++k) {
          au += a[k] * u[k]; av += a[k] * v[k];
          bu += b[k] * u[k]; bv += b[k] * v[k];
          cu += c[k] * u[k]; cv += c[k] * v[k];
          du += d[k] * u[k]; dv += d[k] * v[k];
        }
        float* out = y + r * columns + j;
        out[0] = au + bias[j]; out[1] = av + bias[j + 1]; out += columns;
        out[0] = bu + bias[j]; out[1] = bv + bias[j + 1]; out += columns;
        out[0] = cu + bias[j]; out[1] = cv + bias[j + 1]; out += columns;
        out[0] = du + bias[j]; out[1] = dv + bias[j + 1];
      }
}

torch::Tensor rnn(torch::Tensor x, torch::Tensor h0, torch::Tensor w_in, torch::Tensor b_in,
                  torch::Tensor w_out, torch::Tensor b_out) {
  const int64_t steps = x.size(0), batch = x.size(1), width = x.size(2);
  const int64_t hidden = h0.size(1), outputs = w_out.size(0);
  TORCH_CHECK(steps * batch % 4 == 0 && hidden % 4 == 0 && outputs % 2 == 0, "odd sizes");
  auto states = torch::empty({steps, batch, hidden}, x.options());
  auto y = torch::empty({steps, batch, outputs}, x.options());
  const float* w = w_in.data_ptr<float>();
  float* s = states.data_ptr<float>();
  // What the inputs add is known for all steps at once; only the states follow one another.
  linear(x.data_ptr<float>(), w, b_in.data_ptr<float>(), s, steps * batch, hidden, width,
         width + hidden);
  #pragma omp parallel for
  for (int64_t b = 0; b < batch; ++b) {
    const float* first = h0.data_ptr<float>() + b * hidden;
    std::vector<float> state(first, first + hidden);
    std::vector<float> next(hidden);
    for (int64_t t = 0; t < steps; ++t) {
      float* now = s + (t * batch + b) * hidden;
      for (int64_t j = 0; j < hidden; j += 4) {
        const int64_t stride = width + hidden;
        const float *p = w + j * stride + width, *q = p + stride, *u = q + stride, *v = u + stride;
        const float* h = state.data();
        float sp = 0, sq = 0, su = 0, sv = 0;
        #pragma omp simd reduction(+ : sp, sq, su, sv)
        for (int64_t k = 0; k < hidden; ++k) {
          sp += p[k] * h[k]; sq += q[k] * h[k]; su += u[k] * h[k]; sv += v[k] * h[k];
        }
        const float sums[4] = {sp, sq, su, sv};
        for (int64_t i = 0; i < 4; ++i) next[j + i] = std::tanh(now[j + i] + sums[i]);
      }
      std::copy(next.begin(), next.end(), now);
      std::swap(state, next);
    }
  }
  linear(s, w_out.data_ptr<float>(), b_out.data_ptr<float>(), y.data_ptr<float>(),
         steps * batch, outputs, hidden, hidden);
  return y;
}
"""

extension = load_inline(
    name="rnn",
    cpp_sources=source,
    functions=["rnn"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)
rnn = extension.rnn
'''
    + _RNN_MODULE
)


def gated_norm_drafts(language: str) -> tuple[Draft, ...]:
    """Return drafts for `GATED_NORM`: broken, right and, in C++, right and fast."""
    if language == "triton":
        slip = _NORM_TRITON.replace(
            "tl.sum(x * x, axis=0) / width", "tl.sum(x * x, axis=0) / BLOCK"
        )
        return (
            _draft(slip, language, "One program per row, a power of two wide, masked."),
            _draft(_NORM_TRITON, language, "The mean is over the row's width, not over the block."),
        )
    slow = _NORM_CPP.replace("  #pragma omp parallel for\n", "").replace(
        "    #pragma omp simd\n", ""
    )
    flags = '"-O3", "-march=native", "-fopenmp", "-ffast-math", "-fno-finite-math-only"'
    slow = slow.replace(flags, '"-O0"')
    broken = slow.replace("float squares = 0.0f;", "float squares = 0.0f")
    return (
        _draft(broken, language, "One pass for the sum of squares, one for the result."),
        _draft(slow, language, "A semicolon was missing."),
        _draft(_NORM_CPP, language, "Rows go to both cores, and the loops are vectorised."),
    )


def rnn_drafts() -> tuple[Draft, ...]:
    """Return C++ drafts for KernelBench's vanilla RNN (level 3, number 34): broken, then right."""
    broken = _RNN_CPP.replace("next[j + i] = std::tanh", "state[j + i] = next[j + i] = std::tanh")
    return (
        _draft(broken, "cpp", "The inputs' share is one matrix product; batches run in parallel."),
        _draft(_RNN_CPP, "cpp", "A state was overwritten while others were still read from it."),
    )


def _draft(source: str, language: str, thought: str) -> Draft:
    return Draft(Kernel(source, language), thought)
