"""Builds C++ functions of a kernel without torch, and runs them on numpy arrays.

Each text has its own namespace, so that many are built by one call of the compiler. ``Tensor`` is a
stand-in for torch's that holds floats and has what the search's kernels use.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_STAND_IN = """\
#include <emmintrin.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

namespace torch {
struct Options {};
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> own;
  float* data = nullptr;
  Tensor contiguous() const { Tensor same; same.shape = shape; same.data = data; return same; }
  int64_t size(int64_t at) const { return shape[at]; }
  int64_t numel() const { int64_t n = 1; for (auto s : shape) n *= s; return n; }
  Options options() const { return {}; }
  template <typename T> T* data_ptr() const { return data; }
};
inline Tensor empty(std::initializer_list<int64_t> shape, Options) {
  Tensor made;
  made.shape = shape;
  made.own.assign(made.numel(), std::numeric_limits<float>::quiet_NaN());
  made.data = made.own.data();
  return made;
}
inline Tensor view(float* data, const int64_t* shape, int64_t dims) {
  Tensor made;
  made.shape.assign(shape, shape + dims);
  made.data = data;
  return made;
}
}  // namespace torch
"""


def build(folder: Path, texts: Sequence[str], call: str, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """Build texts into one library, with functions ``run_0``, ``run_1``, ...

    Args:
        folder: An empty folder.
        texts: C++ texts as the judge's compiler would read them.
        call: What calls the function, such as ``f(t(0), t(1), 1e-5)``.
        flags: Of the compiler.
    """
    parts = [_STAND_IN]
    for at, text in enumerate(texts):
        body = "\n".join(line for line in text.splitlines() if not line.startswith("#include"))
        parts.append(
            f"namespace v{at} {{\n{body}\n}}\n"
            f'extern "C" void run_{at}(torch::Tensor** given, float* out) {{\n'
            "  auto t = [&](int at) -> torch::Tensor { return given[at]->contiguous(); };\n"
            f"  auto made = v{at}::{call};\n"
            "  std::copy(made.data, made.data + made.numel(), out);\n}\n"
        )
    parts.append(
        'extern "C" torch::Tensor* view_of(float* data, int64_t* shape, int64_t dims) {\n'
        "  return new torch::Tensor(torch::view(data, shape, dims));\n}\n"
    )
    (folder / "nests.cpp").write_text("".join(parts))
    command = ["g++", "-shared", "-fPIC", "-std=c++20", "-w", *flags, "nests.cpp", "-o", "nests.so"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(folder / "nests.so"))
    library.view_of.restype = ctypes.c_void_p
    return library


def run(
    library: ctypes.CDLL, at: int, inputs: Sequence[np.ndarray], shape: tuple[int, ...]
) -> np.ndarray:
    """Return what the function of a number makes of float32 inputs; its output has this shape."""
    views = []
    for array in inputs:
        sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        views.append(library.view_of(ctypes.c_void_p(array.ctypes.data), sizes, array.ndim))
    given = (ctypes.c_void_p * 8)(*views)
    out = np.full(shape, np.nan, np.float32)
    getattr(library, f"run_{at}")(given, ctypes.c_void_p(out.ctypes.data))
    return out
