"""What counts as a custom kernel of the answer's language."""

from __future__ import annotations

import pytest

from kernelgym.answers.screening import language_of, screen
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_KERNELS
from kernelgym.types import Kernel, Severity

STRICT, BENCH = RULESETS["strict"], RULESETS["kernelbench"]


def codes(kernel: Kernel) -> set[str]:
    return {finding.code for finding in screen(kernel, STRICT)}


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("triton", "import torch\nclass ModelNew(torch.nn.Module):\n    pass\n"),
        ("triton", "# @triton.jit\nclass ModelNew:\n    '''@triton.jit def f(): ...'''\n"),
        ("triton", SAMPLE_KERNELS["cpp"].source),
        ("cpp", SAMPLE_KERNELS["triton"].source),
        ("cpp", "import json\njson.load(open('x'))\nclass ModelNew:\n    pass\n"),
        ("cuda", SAMPLE_KERNELS["cpp"].source),
        ("cuda", "'''__global__'''\n" + SAMPLE_KERNELS["cpp"].source),
        ("hip", SAMPLE_KERNELS["triton"].source),
    ],
)
def test_no_custom_kernel_is_hard_under_strict_alone(language: str, source: str) -> None:
    kernel = Kernel(source, language)
    found = {f.code: f.severity for f in screen(kernel, STRICT)}
    assert found["no_custom_kernel"] is Severity.HARD
    found = {f.code: f.severity for f in screen(kernel, BENCH)}
    assert found["no_custom_kernel"] is Severity.SOFT


@pytest.mark.parametrize(
    "form",
    ["@triton.jit", "@triton.jit(debug=True)", "@t.jit", "@jit", "@triton.autotune([], [])\n@jit"],
)
def test_forms_of_a_triton_kernel(form: str) -> None:
    imports = "import triton\nimport triton as t\nfrom triton import jit\n"
    source = f"{imports}{form}\ndef k(x):\n    pass\nclass ModelNew:\n    def forward(self):\n"
    source += "        k[(1,)](0)\n"
    assert codes(Kernel(source, "triton")) == set()


def test_a_jit_of_another_library_is_no_triton_kernel() -> None:
    source = "import numba\n@numba.jit\ndef k(x):\n    pass\nclass ModelNew:\n    f = k\n"
    assert "no_custom_kernel" in codes(Kernel(source, "triton"))


def test_triton_answer_may_not_build_another_language():
    built = "from torch.utils.cpp_extension import load_inline\nload_inline(name='a')\n"
    source = SAMPLE_KERNELS["triton"].source
    assert "no_custom_kernel" in codes(Kernel(f"{source}\n{built}", "triton"))
    assert "no_custom_kernel" not in codes(Kernel(f"{source}\nx = torch.load\n", "triton"))


def test_a_lambda_for_a_gpu_is_a_kernel_of_its_own():
    source = SAMPLE_KERNELS["cuda"].source
    assert "__global__" in source
    for mark in ("GPU_LAMBDA", "__device__"):
        assert "no_custom_kernel" not in codes(Kernel(source.replace("__global__", mark), "cuda"))
    assert "no_custom_kernel" in codes(Kernel(source.replace("__global__", "static"), "cuda"))


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("cute", "triton"),
        ("cute", "cuda"),
        ("gluon", "triton"),
        ("triton", "cute"),
        ("cuda", "cute"),
        ("triton", "thunderkittens"),
        ("thunderkittens", "cuda"),
        ("thunderkittens", "gluon"),
    ],
)
def test_answer_in_another_language_is_told_which_it_looks_like(asked: str, given: str) -> None:
    findings = screen(Kernel(LANGUAGES[given].sample, asked), RULESETS["strict"])
    told = [f.message for f in findings if f.code == "no_custom_kernel"]
    assert told and f"looks like language {given!r}" in told[0]


@pytest.mark.parametrize("name", LANGUAGES)
def test_language_of_a_sample_is_read_from_its_text(name: str) -> None:
    assert language_of(LANGUAGES[name].sample) == name
    assert language_of("") == language_of("class ModelNew: pass") == language_of("(" * 9) == ""


def test_tilelang_kernel_in_eager_mode_is_a_kernel_of_its_own():
    source = """
import tilelang
import tilelang.language as T
import torch.nn as nn

@tilelang.jit
def copied(x):
    n = T.const("n")
    x: T.Tensor[[n], T.float16]
    y = T.empty([n], T.float16)
    with T.Kernel(1) as bx:
        T.copy(x, y)
    return y

class ModelNew(nn.Module):
    def forward(self, x):
        return copied(x)
"""
    assert not codes(Kernel(source, "tilelang"))
    assert "no_custom_kernel" in codes(Kernel(source.replace("@tilelang.jit", ""), "tilelang"))


def test_samples_of_languages_with_requirements_have_no_finding() -> None:
    for name in ("cute", "gluon", "tilelang", "thunderkittens"):
        findings = screen(Kernel(LANGUAGES[name].sample, name), RULESETS["strict"])
        assert not findings, name


def test_function_that_a_traced_kernel_calls_need_not_be_decorated() -> None:
    sample = LANGUAGES["cute"].sample
    helper = "def twice(x):\n    return x * 2.0\n\n\n@cute.kernel"
    source = sample.replace("@cute.kernel", helper).replace("y[i] = ", "y[i] = twice(0.5) * ")
    assert not screen(Kernel(source, "cute"), RULESETS["strict"])
