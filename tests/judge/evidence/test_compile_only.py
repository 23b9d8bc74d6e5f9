"""Compiling interpreted launches for a GPU that is not here, by every stage of Triton."""

import dataclasses
import re
import shutil

import pytest

from kernelgym.errors import UsageError
from kernelgym.judge import LocalEvaluator
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM
from kernelgym.types import Kernel
from support.interpreted import REFUSED, RELU, relu


def compiling(target, cache_dir):
    rules = dataclasses.replace(RULESETS["strict"], front_end=target)
    return LocalEvaluator(ruleset=rules, cache_dir=cache_dir, timing=False)


@pytest.fixture(scope="module")
def amd(cache_dir):
    with compiling("hip:gfx942", cache_dir) as evaluator:
        yield evaluator


@pytest.mark.parametrize("body", ["y = tl.maximum(v, 0.0)", "y = v + 1.0"], ids=["right", "wrong"])
def test_kernel_that_amd_compiles_has_no_complaint(amd, body):
    found = amd.compile_only(RELU, relu(body))
    assert found.compiled and found.launches == 1, found.complaints


@pytest.mark.parametrize("number", range(len(LANGUAGES["triton"].examples)))
def test_worked_example_of_prompts_compiles_for_amd(amd, number):
    example = LANGUAGES["triton"].examples[number]
    problem = dataclasses.replace(RELU, id=f"Test/example_{number}", source=example.reference)
    found = amd.compile_only(problem, Kernel(example.kernel, "triton"))
    assert found.compiled, found.complaints


def test_kernel_that_the_front_end_refuses_is_told_by_its_line(amd):
    kernel = REFUSED["plain_global"][0]
    line = 1 + next(i for i, text in enumerate(kernel.source.splitlines()) if "v, LOW" in text)
    found = amd.compile_only(RELU, kernel)
    (complaint,) = found.complaints
    assert not found.compiled and f"(line {line}, in relu_kernel)" in complaint


def test_kernel_with_more_warps_than_a_wave_of_64_allows_is_refused(amd):
    launch = "relu_kernel[(5,)](x, out, x.numel(), BLOCK=1024, num_warps=32)"
    (complaint,) = amd.compile_only(RELU, relu(launch=launch)).complaints
    assert "at most 16 warps" in complaint


def test_module_that_does_not_load_has_no_launches(amd):
    found = amd.compile_only(RELU, Kernel("import torch\nraise RuntimeError('no')\n", "triton"))
    assert found.launches == 0 and not found.compiled and "RuntimeError: no" in found.complaints[0]


def test_model_without_a_launch_is_not_compiled(amd):
    forward = "    def forward(self, x):\n        return x\n"
    source = f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n{forward}"
    found = amd.compile_only(RELU, Kernel(source, "triton"))
    assert (found.launches, found.complaints, found.compiled) == (0, (), False)


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_language_that_is_not_compiled_for_amd_is_a_usage_error(amd, language):
    with pytest.raises(UsageError, match=f"'{language}' is not compiled for 'hip:gfx942'"):
        amd.compile_only(SAMPLE_PROBLEM, SAMPLE_KERNELS[language])


ONLY_90A = """
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error only sm_90a
#endif
__global__ void nothing() {}
void f() { nothing<<<1, 1>>>(); }
"""


def in_cuda(source):
    return Kernel(
        "from torch.utils.cpp_extension import load_inline\n"
        f"made = load_inline('made', 'void f();', {source!r}, functions=['f'])\n"
        "class ModelNew: ...\n",
        "cuda",
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no CUDA toolkit here")
def test_cuda_kernel_is_compiled_for_the_architecture_with_its_letter(cache_dir):
    for target, complaints in (("cuda:90a", 0), ("cuda:90", 1)):
        with compiling(target, cache_dir) as evaluator:
            found = evaluator.compile_only(SAMPLE_PROBLEM, in_cuda(ONLY_90A))
        assert found.compiled == (not complaints), found.complaints
        assert all("only sm_90a" in each for each in found.complaints[:1]), found.complaints
        assert all(re.search(r"kernel\.cu\D3\D", each) for each in found.complaints[:1])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no CUDA toolkit here")
def test_cuda_kernel_with_an_undeclared_name_is_told_by_its_line(cache_dir):
    with compiling("cuda:90a", cache_dir) as evaluator:
        kernel = in_cuda("\n__global__ void g() { lost = 1; }\nvoid f() {}\n")
        found = evaluator.compile_only(SAMPLE_PROBLEM, kernel)
    assert not found.compiled
    assert any('identifier "lost" is undefined' in each for each in found.complaints)


def test_cuda_kernel_without_nvcc_says_what_to_install(cache_dir, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with (
        compiling("cuda:90a", cache_dir) as evaluator,
        pytest.raises(UsageError, match="install the CUDA toolkit"),
    ):
        evaluator.compile_only(SAMPLE_PROBLEM, SAMPLE_KERNELS["cuda"])


@pytest.mark.slow
def test_sample_kernel_compiles_for_nvidia(cache_dir):
    with compiling("cuda:90", cache_dir) as evaluator:
        found = evaluator.compile_only(SAMPLE_PROBLEM, SAMPLE_KERNELS["triton"])
    assert found.compiled, found.complaints


@pytest.mark.slow
def test_architecture_that_does_not_exist_is_the_later_stages_complaint(cache_dir):
    with compiling("hip:gfx999", cache_dir) as evaluator:
        found = evaluator.compile_only(RELU, relu())
    assert not found.compiled
    assert any("unsupported target: 'gfx999'" in each for each in found.complaints)
