"""HIP kernels compile for AMD's GPUs by `LocalEvaluator.compile_only`: with a clang, and a script.

The script stands in for clang, so that all but clang itself is tested on every machine. The tests
with clang itself are skipped where there is none, and the skip says what to install.
"""

from __future__ import annotations

import dataclasses
import shutil
import stat

import pytest

from kernelgym.errors import UnsupportedLanguage, UsageError
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.compiling import hip_compiler
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM
from kernelgym.types import Kernel

HIP = LANGUAGES["hip"]
RULES = dataclasses.replace(RULESETS["strict"], front_end="hip:gfx942", cuda_on_cpu=True)
SCRIPT = """#!/bin/sh
for last; do :; done
case "$*" in
  *-print-search-dirs*|*-fsyntax-only*|*" -E "*) exit 0;;
  *--version*) echo "clang version 99"; exit 0;;
esac
test -f torch_hip/c10/hip/HIPStream.h || { echo "x.h:1:1: error: no headers of HIP"; exit 1; }
for text in kernel.cu kernel.cpp; do
  test -f $text && grep -n lost $text | sed "s/^\\([0-9]*\\):.*/$text:\\1:1: error: no lost/" >told
  test -s told && { cat told; exit 1; }
done
echo "s_endpgm" >"$last"
"""
# In the style of KernelBench's example for its backend `hip`: all code in cpp_sources.
KERNELBENCH_STYLE = '''
import os
import torch
from torch.utils.cpp_extension import load_inline
os.environ["CXX"] = "hipcc"
source = """
#include <hip/hip_runtime.h>
__global__ void twice_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
torch::Tensor twice(torch::Tensor x) {
  auto y = torch::zeros_like(x);
  const int n = x.numel();
  twice_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""
made = load_inline(name="made", cpp_sources=source, functions=["twice"], verbose=True)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return made.twice(x)
'''


def compiled(folder, source: str):
    with LocalEvaluator(ruleset=RULES, cache_dir=folder, timing=False) as evaluator:
        return evaluator.compile_only(SAMPLE_PROBLEM, Kernel(source, "hip"))


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Put a script in clang's place."""
    clang = tmp_path / "rocm/llvm/bin/clang++"
    clang.parent.mkdir(parents=True)
    clang.write_text(SCRIPT)
    clang.chmod(clang.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "rocm/include/hip").mkdir(parents=True)
    for name in ("hip_runtime.h", "hip_version.h"):
        (tmp_path / "rocm/include/hip" / name).touch()
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))


@pytest.mark.slow
def test_kernel_of_hip_is_compiled_and_a_complaint_has_its_line(script, tmp_path):
    found = compiled(tmp_path / "cache", HIP.sample)
    assert found.compiled and found.launches == 1, found.complaints
    wrong = compiled(tmp_path / "cache", HIP.sample.replace("fmaxf(in[i]", "fmaxf(lost[i]"))
    assert not wrong.compiled and wrong.complaints == ("kernel.cpp:8:1: error: no lost",)


def test_kernel_of_hip_without_clang_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="apt-get install clang-19 libamdhip64-dev"):
        compiled(tmp_path / "cache", HIP.sample)


def find_trouble() -> str:
    try:
        hip_compiler.hip_compiler("gfx942")
    except UnsupportedLanguage as error:
        return str(error)
    return ""


TROUBLE = find_trouble()
with_clang = pytest.mark.skipif(bool(TROUBLE), reason=TROUBLE or "there is a clang")


@with_clang
@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(HIP.sample, id="sample"),
        *(pytest.param(example.kernel, id=example.title) for example in HIP.examples),
        pytest.param(SAMPLE_KERNELS["cuda"].source, id="translated from CUDA"),
        pytest.param(KERNELBENCH_STYLE, id="KernelBench's style"),
    ],
)
def test_honest_kernel_of_hip_compiles_by_clang(cache_dir, source):
    found = compiled(cache_dir, source)
    assert found.compiled and found.launches == 1, found.complaints


@with_clang
@pytest.mark.slow
def test_undeclared_name_is_told_by_clang_with_its_line(cache_dir):
    found = compiled(cache_dir, KERNELBENCH_STYLE.replace("2 * x[i]", "lost * x[i]"))
    (complaint,) = found.complaints
    assert "kernel.cpp:5:" in complaint and "use of undeclared identifier 'lost'" in complaint
