"""Thin headers: the names in a source choose the headers and the parts that `thin` leaves out."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.compiling import thin_headers as headers
from kernelgym.judge.compiling.thin_headers import included_names, thin_headers

PLAIN = "torch::Tensor f(torch::Tensor x) { return torch::relu(x); }"


@pytest.fixture(scope="module")
def include():
    """torch's folder of headers."""
    import torch

    return Path(torch.__file__).parent / "include"


def _needed(source, include):
    return thin_headers((source,), include).needed


def test_names_bring_headers(include):
    assert "ATen/ops/relu.h" in _needed(PLAIN, include)
    assert "ATen/ops/" not in _needed("int relu(int x);", include)
    assert "ATen/ops/relu.h" in _needed(
        "using namespace torch;\nTensor f(Tensor x) { relu(x); }", include
    )
    assert "ATen/Dispatch.h" in _needed("AT_DISPATCH_FLOATING_TYPES", include)
    assert "torch/csrc/utils/pybind.h" in _needed(
        'void f(py::object x) { py::print("x"); }', include
    )
    assert "IListRef.h" in _needed("at::cat({x, y}, 0)", include)
    assert "IListRef.h" not in _needed(PLAIN, include)
    assert "pybind" not in _needed("int copy(int x); // numpy", include)


def test_tensor_brings_the_factory_of_torch(include):
    assert "kernelgym_tensor.h" in _needed("torch::tensor(1.5, x.options())", include)
    assert "kernelgym_tensor.h" in _needed("using namespace torch; tensor(1);", include)
    assert "kernelgym_tensor.h" not in _needed("torch::Tensor tensor;", include)


def test_tensor_factory_needs_no_part(include):
    assert thin_headers((PLAIN + " torch::tensor(1);",), include).macros == ()


MACROS = {
    "KERNELGYM_COMPLEX": [
        *("c10::complex<float> z;", "at::kComplexFloat", "#include <thrust/sort.h>"),
        *("#include <cub/cub.cuh>", "cuda::std::array<int, 3> a;", "__nv_fp8_e4m3 x;"),
        *("AT_DISPATCH_ALL_TYPES_AND_COMPLEX(t, n, f)", "#include <mine/other.h>"),
        "#include <ATen/cuda/cub.cuh>",
    ],
    "KERNELGYM_CONTEXT": ["at::globalContext().allowTF32CuBLAS()", "at::manual_seed(1)"],
    "KERNELGYM_CUDA_LIBRARIES": [
        *("at::cuda::getCurrentCUDABlasHandle()", "#include <ATen/cuda/CUDABlas.h>"),
        "cusparseHandle_t handle;",
    ],
}


@pytest.mark.parametrize(("macro", "text"), [(m, t) for m, ts in MACROS.items() for t in ts])
def test_what_is_left_out_comes_back_by_name(include, macro, text):
    assert f"-D{macro}" in thin_headers((PLAIN, text), include).macros


@pytest.mark.parametrize(
    "text",
    [
        *("at::cuda::getCurrentCUDAStream()", "#include <ATen/cuda/CUDAContext.h>", "c10::cuda::x"),
        *(
            "#include <c10/cuda/CUDAGuard.h>",
            "#include <cuda_fp16.h>",
            "AT_DISPATCH_ALL_TYPES(t,n,f)",
        ),
        *("#include <torch/extension.h>", "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"),
    ],
)
def test_usual_sources_need_none_of_it(include, text):
    assert thin_headers((PLAIN, text), include).macros == ()


@given(st.lists(st.text(max_size=200), max_size=3))
def test_any_text_has_headers(include, texts):
    needed = thin_headers(tuple(texts), include).needed
    assert needed.startswith("#pragma once\n") and "/../" not in needed


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#include <a.h>", {"a.h"}),
        (' \t# include\t"sub/a.h" // x', {"sub/a.h"}),
        ("int a;\n#include<a.h>\n#include <b.h>", {"a.h", "b.h"}),
        ("#\ninclude <a.h>", set()),
        ("#include\n<a.h>", set()),
        ("#define X\n#include X", set()),
        ("int a; #include <a.h>", set()),
    ],
)
def test_included_names_are_those_of_directives(text, names):
    assert included_names(text) == names


@given(st.text(alphabet='\n\t #<include>"a', max_size=60))
def test_include_match_begins_at_its_own_line(text):
    # A match that began on an earlier line would try every line of blanks again: quadratic time.
    for match in headers._INCLUDE.finditer(text):
        assert "\n" not in match[0] and text[: match.start()][-1:] in ("", "\n")


@pytest.mark.parametrize(
    "name", ["/dev/zero", "../" * 30 + "dev/zero", "/proc/self/mem", "a\0b", "\ud800.h", "." * 9000]
)
def test_included_name_is_never_opened(include, name, monkeypatch):
    thin_headers((PLAIN,), include)  # the list of torch's operators is kept from now on
    monkeypatch.setattr(Path, "open", None)
    monkeypatch.setattr("builtins.open", None)
    monkeypatch.setattr("os.open", None)
    assert "zero" not in thin_headers((f'{PLAIN}\n#include "{name}"\n',), include).needed
