"""One edit of a kernel that is read leaves it read."""

from __future__ import annotations

import pytest

from kernelgym_train.mcgs.cpp.forms import walk_loops
from kernelgym_train.mcgs.cpp.loops import read_functions
from kernelgym_train.mcgs.cpp.proofs import has_independent_iterations

_PLAIN = """
#include <torch/extension.h>
#include <cmath>
static inline float scaled(float v, float by) { return v * by; }
torch::Tensor run_it(torch::Tensor x_in) {
  auto x = x_in.contiguous();
  const int64_t R = x.size(0), C = x.size(1);
  auto y = torch::empty_like(x);
  const float* xp = x.data_ptr<float>();
  float* yp = y.data_ptr<float>();
  for (int64_t r = 0; r < R; r++) {
    float s = 0;
    for (int64_t c = 0; c < C; c++) s += xp[r * C + c] * xp[r * C + c];
    for (int64_t c = 0; c < C; c++) yp[r * C + c] = xp[r * C + c] * s;
  }
  return y;
}
"""
_SUM = "s += xp[r * C + c] * xp[r * C + c];"
_STORE = "yp[r * C + c] = xp[r * C + c] * s;"
_READ = [
    ("float s = 0;", "float s = 0, t = 1.0f; (void)t;"),
    ("float s = 0;", "float s{0};"),
    ("float s = 0;", "float s = 0.f; const float eps = 1e-5f;"),
    ("float s = 0;", "auto s = 0.0f;"),
    ("float s = 0;", "double s = 0.0;"),
    ("float s = 0;", "float s; s = 0;"),
    ("float s = 0;", "const float* row = xp + r * C; float s = row[0] - row[0];"),
    ("float s = 0;", "const float* row = &xp[r * C]; float s = 0;"),
    ("float s = 0;", "const auto base = r * C; float s = xp[base] * 0.0f;"),
    (_SUM, "s += (float)xp[r * C + c] * xp[r * C + c];"),
    (_SUM, "s += float(xp[r * C + c]) * static_cast<float>(xp[r * C + c]);"),
    (_SUM, "s = s + xp[r * C + c] * xp[r * C + c];"),
    (_SUM, "s = std::fma(xp[r * C + c], xp[r * C + c], s);"),
    (_SUM, "s = fmaf(xp[r * C + c], xp[r * C + c], s);"),
    (_SUM, "{ const float v = xp[r * C + c]; s += v * v; }"),
    (_SUM, "{ float v = xp[r * C + c]; v *= v; s += v; }"),
    (_SUM, "s += std::pow(xp[r * C + c], 2);"),
    (_SUM, "if (xp[r * C + c] > s) s = xp[r * C + c];"),
    (_SUM, "s = xp[r * C + c] > s ? xp[r * C + c] : s;"),
    (_SUM, "s = std::max(s, std::abs(xp[r * C + c]));"),
    (_SUM, "{ if (xp[r * C + c] < 0) continue; s += xp[r * C + c]; }"),
    (_SUM, "{ if (std::isnan(xp[r * C + c])) break; s += xp[r * C + c]; }"),
    (_SUM, "s += xp[r * C + c] * xp[(r * C + c) % C];"),
    (_SUM, "s += xp[r * C + c / 2];"),
    (_SUM, "s += xp[r * C + (C - 1 - c)];"),
    (_SUM, "s += x.data_ptr<float>()[r * C + c];"),
    (_SUM, "s += *(xp + r * C + c);"),
    (_STORE, "yp[r * C + c] = xp[r * C + c] / s;"),
    (_STORE, "yp[r * C + c] = s > 0 ? xp[r * C + c] : 0.0f;"),
    (_STORE, "{ float v = xp[r * C + c] * s; if (v < 0) v = 0; yp[r * C + c] = v; }"),
    (_STORE, "{ const int64_t i = r * C + c; yp[i] = xp[i] * s; }"),
    (_STORE, "{ const auto i = r * C + c; yp[i] = xp[i] * s; }"),
    (_STORE, "{ yp[r * C + c] = xp[r * C + c]; yp[r * C + c] *= s; }"),
    (_STORE, "yp[r * C + c] = scaled(xp[r * C + c], s);"),
    (_STORE, "y.data_ptr<float>()[r * C + c] = xp[r * C + c] * s;"),
    ("r < R; r++", "r <= R - 1; r++"),
    ("r < R; r++", "r < x.size(0); r += 1"),
    ("r < R; r++", "r != R; ++r"),
    ("r < R; r++", "R > r; ++r"),
    ("for (int64_t r = 0; r < R", "for (int r = 0; r < (int)R"),
    ("for (int64_t r = 0; r < R", "for (size_t r = 0; r < R"),
    ("for (int64_t r = 0; r < R", "for (auto r = int64_t(0); r < R"),
    (
        "const int64_t R = x.size(0), C = x.size(1);",
        "const auto R = x.size(0); const auto C = x.size(1);",
    ),
    (
        "const int64_t R = x.size(0), C = x.size(1);",
        "const auto sizes = x.sizes(); const int64_t R = sizes[0], C = sizes[1];",
    ),
    ("const int64_t R = x.size(0), C = x.size(1);", "int R = x.size(0), C = x.size(1);"),
    ("const float* xp =", "const float* __restrict__ xp ="),
    ("const float* xp =", "const float* const xp ="),
    ("auto y = torch::empty_like(x);", "auto y = at::zeros({R, C}, x.options());"),
    (
        "auto y = torch::empty_like(x);",
        'TORCH_CHECK(x.dim() == 2, "rows"); torch::Tensor y = torch::empty_like(x);',
    ),
]
"""Edits after which the iterations over rows are still independent."""
_PARTLY = [
    (_SUM, "s += x[r][c].item<float>();"),
    ("for (int64_t r = 0; r < R", "for (unsigned r = 0; r < R"),
    ("for (int64_t r = 0; r < R; r++)", "for (int64_t r = R - 1; r >= 0; --r)"),
]
"""Edits that cost the loop they stand in."""


@pytest.mark.parametrize(("old", "new"), _READ)
def test_edit_of_a_common_form_keeps_rows_independent(old: str, new: str) -> None:
    assert old in _PLAIN
    found = {
        loop.name: has_independent_iterations(function, loop)
        for function in read_functions(_PLAIN.replace(old, new, 1))
        for loop in walk_loops(function.loops)
    }
    assert found["run_it/r"]


@pytest.mark.parametrize(("old", "new"), _PARTLY)
def test_edit_that_is_not_understood_leaves_other_loops_read(old: str, new: str) -> None:
    assert old in _PLAIN
    names = {
        loop.name
        for function in read_functions(_PLAIN.replace(old, new, 1))
        for loop in walk_loops(function.loops)
    }
    assert names and "run_it/r" not in names
