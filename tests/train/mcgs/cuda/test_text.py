"""CUDA texts: kernels, launches and constants that are read, and those that are left out."""

from __future__ import annotations

import pytest

from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.cuda.products import product_of
from kernelgym_train.mcgs.cuda.text import CudaText, global_indices
from support.cuda_texts import CASES

KERNELS = """
template <typename scalar_t>
__global__ void __launch_bounds__(256) scale(scalar_t* x, const int n) { x[threadIdx.x] = 1; }
extern "C" __global__ void plain(const float* __restrict__ x, float** y) { }
extern "C" __global__ void fill(float* x) { }
__device__ float half_of(float x) { return x / 2; }
__global__ void declared(float* x);
"""


def launched(text: str) -> list[tuple[list[str], list[str]]]:
    read = CudaText(f"#define TILE 16\n{KERNELS}\nvoid run(float* x, int n) {{ {text} }}")
    return [([*map(text_of, e.grid)], [*map(text_of, e.block)]) for e in read.launches]


def test_kernels_have_parameters_or_are_left_out() -> None:
    read = CudaText(KERNELS)
    assert list(read.kernels) == ["scale", "fill"]  # of `plain` a parameter is not understood
    first, second = read.kernels["scale"].parameters
    assert (first.element, first.is_pointer, second.is_pointer) == ("scalar_t", True, False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("fill<<<(n + 255) / 256, 256>>>(x);", [(["(n + 255) / 256"], ["256"])]),
        ("scale<float><<<dim3(n, 2), dim3(8, 8), 0>>>(x, n);", [(["n", "2"], ["8", "8"])]),
        ("dim3 b(TILE, TILE); dim3 g{4, 5}; fill<<<g, b>>>(x);", [(["4", "5"], ["TILE", "TILE"])]),
        ("const int t = 64; fill<<<n, t>>>(x);", [(["n"], ["64"])]),
        ("int t = 64; t *= 2; fill<<<n, t>>>(x);", [(["n"], [])]),
        ("dim3 b; b.x = 4; fill<<<n, b>>>(x);", [(["n"], [])]),
        ("half_of<<<1, 2>>>(x); other<<<1, 2>>>(x);", []),
    ],
)
def test_launches_are_followed_to_their_sizes(
    text: str, found: list[tuple[list[str], list[str]]]
) -> None:
    assert launched(text) == found


def test_names_that_are_declared_twice_are_no_constants() -> None:
    read = CudaText(
        "constexpr int A = 4;\nconst int B = 5; void f() { const int B = 6; int C = 7; }"
    )
    assert {name: each.value for name, each in read.constants.items()} == {"A": 4}


@pytest.mark.parametrize(
    ("value", "axis"),
    [
        ("blockIdx.x * blockDim.x + threadIdx.x", "x"),
        ("threadIdx.y + (int64_t)blockDim.y * blockIdx.y", "y"),
        ("blockIdx.x * SIZE + threadIdx.x", "x"),
        ("blockIdx.x * blockDim.y + threadIdx.x", ""),
        ("blockIdx.x * blockDim.x", ""),
    ],
)
def test_index_of_the_grid_is_told_by_its_axis(value: str, axis: str) -> None:
    text = f"constexpr int SIZE = 64; __global__ void f(float* x) {{ int i = {value}; x[i] = 0; }}"
    read = CudaText(text)
    assert global_indices(read.kernels["f"], read.constants) == ({"i": axis} if axis else {})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("float acc = 0;", "float acc = 1;"),
        ("k < K", "k <= K"),
        ("k++", "k += 2"),
        ("acc + A[row * K + k]", "acc - A[row * K + k]"),
        ("A[row * K + k] * B[k * N + col]", "A[row * K + k] * B[k * N + row]"),
        ("if (row >= M || col >= N) return;", "if (row >= M) return;"),
        ("C[row * N + col] = acc;", "C[row * N + col] = acc; A[0];"),
        ("C[row * N + col] = acc;", "C[2 * row] = acc;"),
    ],
)
def test_product_of_another_form_is_none(before: str, after: str) -> None:
    text = CASES["product"].text
    assert before in text
    read = CudaText(text)
    assert product_of(read, read.kernels["product"]) is not None
    changed = CudaText(text.replace(before, after))
    assert product_of(changed, changed.kernels["product"]) is None
