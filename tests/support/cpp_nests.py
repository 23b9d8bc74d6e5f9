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
#include <type_traits>
#include <vector>

namespace torch {
struct Options {};
template <typename T, int N>
struct Accessor {
  T* data;
  const int64_t* shape;
  auto operator[](int64_t at) const -> std::conditional_t<N == 1, T&, Accessor<T, N - 1>> {
    int64_t step = 1;
    for (int dim = 1; dim < N; ++dim) step *= shape[dim];
    if constexpr (N == 1) return data[at];
    else return {data + at * step, shape + 1};
  }
  int64_t size(int64_t at) const { return shape[at]; }
};
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> own;
  float* data = nullptr;
  Tensor contiguous() const { Tensor same; same.shape = shape; same.data = data; return same; }
  int64_t size(int64_t at) const { return shape[at]; }
  int64_t numel() const { int64_t n = 1; for (auto s : shape) n *= s; return n; }
  Options options() const { return {}; }
  template <typename T> T* data_ptr() const { return data; }
  template <typename T, int N> Accessor<T, N> accessor() const { return {data, shape.data()}; }
};
inline Tensor empty(std::initializer_list<int64_t> shape, Options) {
  Tensor made;
  made.shape = shape;
  made.own.assign(made.numel(), std::numeric_limits<float>::quiet_NaN());
  made.data = made.own.data();
  return made;
}
inline Tensor empty_like(const Tensor& of) {
  Tensor made;
  made.shape = of.shape;
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
namespace at {
using torch::Tensor;
template <typename F>
void parallel_for(int64_t begin, int64_t end, int64_t, F f) { if (begin < end) f(begin, end); }
}  // namespace at
"""


_MAIN = """\
#include <cstdio>
#include <cstdlib>
int main(int, char** argv) {
  const int first = std::atoi(argv[1]), last = std::atoi(argv[2]);
  const auto number = [&](int at) { return std::atoll(argv[3 + at]); };
  const auto tensor = [](int64_t count) {
    auto made = torch::empty({count}, {});
    for (int64_t at = 0; at < count; ++at) made.data[at] = 0.25f * (at % 13) - 1.0f;
    return made;
  };
  for (int at = first; at < last; ++at) {
    std::printf("%d:", at);
    std::fflush(stdout);
    auto made = runs[at](tensor, number);
    for (int64_t at = 0; at < made.numel(); ++at) std::printf(" %a", made.data[at]);
    std::printf("\\n");
  }
}
"""


def sanitised(folder: Path, texts: Sequence[str], call: str) -> Path:
    """Build texts into a program that stops at undefined behaviour; returns its path.

    The program takes the first text's number, the last one's and one, and whole numbers. It prints
    what each text computes.

    Args:
        folder: An empty folder.
        texts: C++ texts as the judge's compiler would read them.
        call: What calls the function; ``tensor(3)`` makes a tensor, ``number(0)`` is the first of
            the program's numbers.
    """
    parts = [_STAND_IN]
    for at, text in enumerate(texts):
        body = "\n".join(line for line in text.splitlines() if not line.startswith("#include"))
        parts.append(f"namespace v{at} {{\n{body}\n}}\n")
    runs = ", ".join(
        f"[](Tensors tensor, Numbers number) -> torch::Tensor {{ return v{at}::{call}; }}"
        for at in range(len(texts))
    )
    parts.append(
        "#include <functional>\n"
        "using Tensors = std::function<torch::Tensor(int64_t)>;\n"
        "using Numbers = std::function<int64_t(int)>;\n"
        f"static torch::Tensor (*const runs[])(Tensors, Numbers) = {{{runs}}};\n"
    )
    (folder / "program.cpp").write_text("".join([*parts, _MAIN]))
    flags = ("-std=c++20", "-w", "-O1", "-ffp-contract=off", "-fopenmp")
    checks = ("-fsanitize=undefined,address,float-cast-overflow", "-fno-sanitize-recover=all")
    command = ["g++", *flags, *checks, "program.cpp", "-o", "program"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "program"


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
