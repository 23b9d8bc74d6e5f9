"""What a unit is compiled against: names bring headers, methods and what `thin` leaves out."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.compiling.tensor_header import TENSOR_BODY, tensor_body
from kernelgym.judge.compiling.thin_headers import thin_headers

PLAIN = "torch::Tensor f(torch::Tensor x) { return torch::relu(x); }"


@pytest.fixture(scope="module")
def include():
    """torch's folder of headers."""
    import torch

    return Path(torch.__file__).parent / "include"


@pytest.fixture(scope="module")
def body(include):
    return (include / TENSOR_BODY).read_text()


def _methods(text):
    """Every overload of every method, as it is declared and defined."""
    return set(re.findall(r"^inline [^\n]*? Tensor::\w+\([^\n]*", text, re.M))


def _needed(source, include):
    return thin_headers((source,), include).files["kernelgym_needed.h"]


# --- the tensor's header ------------------------------------------------------------------------
def test_the_installed_header_is_cut_to_a_fraction(include, body):
    none = tensor_body(include, frozenset())
    assert none is not None and len(none) < len(body) / 3
    assert none.count("ATen/ops/") < 60 and "MethodOperators" not in none


def test_all_names_bring_the_whole_header_back(include, body):
    every = tensor_body(include, frozenset(re.findall(r"\w+", body)))
    assert _methods(every) == _methods(body) and len(_methods(body)) > 700
    rest = [line for line in body.splitlines() if "MethodOperators" not in line]
    assert [line for line in every.splitlines() if "#include <ATen/" not in line] == [
        line for line in rest if "#include <ATen/" not in line
    ]
    operators = (include / "ATen/MethodOperators.h").read_text()
    listed = set(re.findall(r"#include <(ATen/ops/\w+\.h)>", operators))
    assert set(re.findall(r"#include <(ATen/ops/\w+\.h)>", every)) == listed


@given(st.data())
def test_a_name_brings_all_overloads_and_nothing_else(include, body, data):
    names = sorted(set(re.findall(r" Tensor::(\w+)\(", body)))
    wanted = frozenset(data.draw(st.lists(st.sampled_from(names), max_size=5)))
    least = _methods(tensor_body(include, frozenset()))
    kept = _methods(tensor_body(include, wanted))
    assert least <= kept <= _methods(body)
    named = {
        line for line in _methods(body) if line.partition(" Tensor::")[2].split("(")[0] in wanted
    }
    assert kept == least | named


def test_a_declaration_goes_with_its_definition(include):
    text = tensor_body(include, frozenset({"bmm"}))
    assert len(re.findall(r"(?<!aten::)\bbmm\(", text)) == 2 and "ATen/ops/bmm_ops.h" in text
    assert not re.search(r"\b(baddbmm|bincount|sinc)\b", text)


@pytest.mark.parametrize(
    "change",
    [
        ("#include <ATen/MethodOperators.h>", "#include <ATen/Other.h>"),
        ("at::_ops::bmm::call", "at::_ops::unheard_of::call"),
        ("  at::Tensor bmm(const at::Tensor & mat2) const;\n", ""),
    ],
)
def test_a_header_that_reads_otherwise_is_taken_whole(include, body, tmp_path, change):
    assert change[0] in body
    (tmp_path / "ATen/core").mkdir(parents=True)
    (tmp_path / TENSOR_BODY).write_text(body.replace(*change))
    operators = (include / "ATen/MethodOperators.h").read_text()
    (tmp_path / "ATen/MethodOperators.h").write_text(operators)
    assert tensor_body(tmp_path, frozenset()) is None
    assert TENSOR_BODY not in thin_headers((PLAIN,), tmp_path).files


# --- what else ----------------------------------------------------------------------------------
def test_methods_that_other_headers_call_are_kept(include):
    text = thin_headers((PLAIN,), include).files[TENSOR_BODY]
    for name in ("add", "sub_", "fill_", "remainder"):  # of the operators on tensors
        assert f" Tensor::{name}(" in text
    assert " Tensor::bmm(" not in text
    assert " Tensor::bmm(" in thin_headers((PLAIN + "// x.bmm(y)",), include).files[TENSOR_BODY]


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


def test_tensor_factory_reads_few_headers(include):
    body = thin_headers((PLAIN,), include).files[TENSOR_BODY]
    more = thin_headers((PLAIN + " torch::tensor(1);",), include)
    assert len(more.files[TENSOR_BODY]) < 1.1 * len(body) and more.macros == ()


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
    headers = thin_headers(tuple(texts), include)
    assert headers.files["kernelgym_needed.h"].startswith("#pragma once\n")
    assert all("/../" not in f"/{name}/" for name in headers.files)
