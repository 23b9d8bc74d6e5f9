"""Compiling HIP: what finds clang, translates CUDA's names, checks requests and reads complaints.

No test here needs a clang; `tests/judge/evidence/test_compile_hip.py` has those that do.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.hipify import hipify_python

from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge.compiling import hip_compiler
from kernelgym.judge.compiling.compilation import HIP_STAGES
from kernelgym.judge.compiling.hip_stages import translated
from kernelgym.judge.compiling.missing_headers import missing_from_thin
from kernelgym.judge.compiling.request import BadRequest, read_request
from kernelgym.judge.compiling.thin_headers import THIN_HEADERS, thin_headers

DEVICE = "__global__ void f() {}\n"
HIP_HEADERS = "#include <hip/hip_runtime.h>\n#include <c10/hip/HIPStream.h>\n"


@pytest.fixture
def rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name an empty folder of ROCm, with no clang on the PATH."""
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    return tmp_path


def add_clang(root: Path, body: str = "exit 0") -> str:
    clang = root / "llvm/bin/clang++"
    clang.parent.mkdir(parents=True)
    clang.write_text(f"#!/bin/sh\n{body}\n")
    clang.chmod(clang.stat().st_mode | stat.S_IXUSR)
    return str(clang)


def add_headers(root: Path) -> None:
    (root / "include/hip").mkdir(parents=True)
    (root / "include/hip/hip_runtime.h").touch()
    numbers = {"MAJOR": 7, "MINOR": 1, "PATCH": 3}
    text = "".join(f"#define HIP_VERSION_{part} {number}\n" for part, number in numbers.items())
    (root / "include/hip/hip_version.h").write_text(text)


def read(**fields: object):
    return read_request({"name": "m", **fields}, hip=True)


def test_missing_clang_is_told_with_what_to_install(rocm):
    with pytest.raises(UnsupportedLanguage, match=r"no clang .*apt-get install clang-19"):
        hip_compiler.find_hip_clang()


def test_missing_headers_are_told_with_what_to_install(rocm, monkeypatch):
    add_clang(rocm)
    monkeypatch.setattr(hip_compiler, "_headers", lambda: None)
    with pytest.raises(UnsupportedLanguage, match=r"no hip/hip_runtime\.h .*libamdhip64-dev"):
        hip_compiler.find_hip_clang()


def test_clang_of_rocm_path_is_taken_with_its_headers(rocm):
    clang = add_clang(rocm)
    add_headers(rocm)
    hip_compiler.hip_compiler.cache_clear()
    found = hip_compiler.hip_compiler("gfx942")
    assert hip_compiler.find_hip_clang() == clang
    assert (found.headers, found.version, found.has_thrust) == (f"{rocm}/include", "7.1.3", False)
    assert "--offload-arch=gfx942" in found.flags() and f"{rocm}/include" in found.flags()


def test_gpu_that_clang_does_not_know_is_told_to_need_a_newer_one(rocm):
    add_clang(rocm, "exit 1")
    add_headers(rocm)
    hip_compiler.hip_compiler.cache_clear()
    with pytest.raises(UnsupportedLanguage, match=r"'gfx950': .* install a newer clang"):
        hip_compiler.hip_compiler("gfx950")


@given(st.lists(st.sampled_from([" cudaError_t e;", "#include <ATen/cuda/Atomic.cuh>", "x"])))
def test_translation_keeps_the_number_of_lines(lines):
    text = "\n".join(lines)
    found = translated(text, hipify_python)
    assert found.count("\n") == text.count("\n") and "cudaError_t" not in found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("#include <c10/cuda/CUDAStream.h>", "#include <c10/hip/HIPStream.h>"),
        ("#include <ATen/cuda/CUDAContext.h>", "#include <ATen/hip/HIPContext.h>"),
        ("  cudaMalloc(&p, 4);", "  hipMalloc(&p, 4);"),
        ("int mycudaMalloc;", "int mycudaMalloc;"),
    ],
)
def test_translation_gives_the_names_of_torchs_rocm_builds(before, after):
    assert translated(before, hipify_python) == after


@pytest.mark.parametrize("sources", ["translated", "kept"])
def test_stages_write_torchs_headers_and_translate_sources_if_asked(tmp_path, sources):
    (tmp_path / "kernel.cu").write_text("\ncudaError_t e;\n")
    torch_folder = os.path.dirname(torch.__file__)
    command = [sys.executable, "-I", "-S", "-B", str(HIP_STAGES), torch_folder, str(THIN_HEADERS)]
    subprocess.run([*command, sources, "/bin/true"], cwd=tmp_path, check=True)
    kept = "hipError_t" if sources == "translated" else "cudaError_t"
    assert (tmp_path / "kernel.cu").read_text() == f"\n{kept} e;\n"
    stream = (tmp_path / "torch_hip/c10/hip/HIPStream.h").read_text()
    assert "hipStream_t" in stream and "cudaStream_t" not in stream
    assert (tmp_path / "thin_hip/ATen/hip/HIPContext.h").is_file()


def test_device_code_in_cpp_sources_without_hipcc_is_refused():
    assert read(cpp_sources=[DEVICE], cxx="hipcc").cpp_sources == (DEVICE,)
    assert read(cpp_sources=["void f();"], cuda_sources=[DEVICE]).cuda_sources == (DEVICE,)
    assert read(cpp_sources=["// no __global__ here\nvoid f();"]).cpp_sources
    with pytest.raises(BadRequest, match=r'os\.environ\["CXX"\] = "hipcc"'):
        read(cpp_sources=[DEVICE])


def test_flags_of_hip_are_clangs_and_name_no_gpu():
    flags = ["-O3 --offload-arch=gfx90a", "-ffast-math"]
    made = read(cuda_sources=[DEVICE], cuda_cflags=flags, ldflags=["-lamdhip64"])
    assert made.cuda_cflags == ("-O3", "-ffast-math") and made.ldflags == ("-lamdhip64",)
    with pytest.raises(BadRequest, match="'--use_fast_math' is not allowed"):
        read(cuda_sources=[DEVICE], cuda_cflags=["--use_fast_math"])


def test_headers_of_hip_need_no_further_part_of_torchs():
    include = Path(torch.__file__).parent / "include"
    assert thin_headers((HIP_HEADERS,), include).macros == ()
    assert thin_headers(("#include <rocwmma/rocwmma.hpp>\n",), include).macros


@pytest.mark.parametrize(
    ("message", "may_help"),
    [
        ("no member named 'randperm' in namespace 'torch'", True),
        ("no member named 'lost_by_me' in namespace 'torch'", False),
        ("use of undeclared identifier 'TORCH_CHECK_TENSOR_ALL'", True),
        ("use of undeclared identifier 'tensor'", False),
        ("implicit instantiation of undefined template 'kernelgym::Kind<c10::Device>'", True),
    ],
)
def test_complaint_of_clang_leads_to_torchs_real_headers_where_they_declare_it(message, may_help):
    assert missing_from_thin(f"kernel.cu:3:5: error: {message}\n") == may_help
