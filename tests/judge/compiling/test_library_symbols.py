"""Symbols of built extensions: read from real libraries, judged by name, refused by the judge."""

import dataclasses
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.judge import LocalEvaluator
from kernelgym.judge.compiling.cpp_compiler import find_compiler
from kernelgym.judge.compiling.library_symbols import (
    NOTHING_LEFT,
    LibraryWork,
    device_functions,
    library_work,
    needed_symbols,
)
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel, Severity, Status
from support.programs import TIGHT, problem

DECLARED = """
extern "C" {
void sgemm_(const char*); float cblas_sdot(int); void* dlsym(void*, const char*);
int cublasSgemm_v2(void*); int cublasCreate_v2(void*); int cudaLaunchKernel(const void*);
int cudnnConvolutionForward(void*); float expf(float); int pthread_create(void*);
int aoti_torch_cpu_addmm_out(void*); int aoti_torch_mm_out(void*);
int aoti_torch_proxy_executor_call_function(void*); int aoti_torch_empty_strided(void*);
int aoti_torch_get_data_ptr(void*); int aoti_torch_call_dispatcher(void*);
int GOMP_parallel(void*); int cufftExecC2C(int); extern int mkl_serv_flag;
int PyImport_ImportModule(void*); int PyCapsule_Import(void*, int);
}
namespace std { struct thread { static void _M_start_thread(int); }; }
namespace at {
struct Tensor {}; struct TensorBase { float* data_ptr() const; };
struct ThreadLocalState { static void setThreadLocalState(int); };
int get_thread_num(); void enableRecordFunction(bool); void addGlobalCallback(int);
namespace cpu { Tensor _softmax(const Tensor&, long, bool); bool is_avx512_supported(); }
namespace cuda { Tensor mm(const Tensor&, const Tensor&); void* getCurrentCUDABlasHandle();
  namespace blas { void gemm(float); } }
namespace native { extern int softmax_kernel; Tensor view(const Tensor&); void gemm(float*);
  bool canUse32BitIndexMath(const TensorBase&); }
namespace _ops {
  struct mm { static Tensor call(const Tensor&); static Tensor redispatch(int, const Tensor&); };
  struct empty_like { static Tensor call(const Tensor&); static Tensor redispatch(const Tensor&); };
}}
namespace c10 { struct Dispatcher { void findSchemaOrThrow(const char*) const; }; }
using namespace at;
"""
HIDDEN = {
    "sgemm_(0)": ("sgemm_",),
    "cblas_sdot(1)": ("cblas_sdot",),
    "dlsym(0, 0)": ("dlsym",),
    "out = mkl_serv_flag": ("mkl_serv_flag",),
    "cpu::_softmax({}, 1, false)": ("at::cpu::_softmax",),
    "cuda::mm({}, {})": ("at::cuda::mm",),
    "cuda::blas::gemm(1)": ("at::cuda::blas::gemm",),
    "native::gemm(0)": ("at::native::gemm",),
    "out = native::softmax_kernel": ("at::native::softmax_kernel",),
    "_ops::mm::redispatch(1, {})": ("at::_ops::mm::redispatch",),
    "_ops::mm::call({}); enableRecordFunction(false)": (
        "at::enableRecordFunction",
        "at::_ops::mm::call",
    ),
    "_ops::mm::call({}); addGlobalCallback(0)": ("at::addGlobalCallback", "at::_ops::mm::call"),
    "_ops::mm::call({}); ThreadLocalState::setThreadLocalState(1)": (
        "at::ThreadLocalState::setThreadLocalState",
        "at::_ops::mm::call",
    ),
    "ThreadLocalState::setThreadLocalState(1)": ("at::ThreadLocalState::setThreadLocalState",),
    "enableRecordFunction(false)": ("at::enableRecordFunction",),
    "c10::Dispatcher().findSchemaOrThrow(0)": ("c10::Dispatcher::findSchemaOrThrow",),
    "PyImport_ImportModule(0)": ("PyImport_ImportModule",),
    "PyCapsule_Import(0, 0)": ("PyCapsule_Import",),
    "aoti_torch_cpu_addmm_out(0)": ("aoti_torch_cpu_addmm_out",),
    "aoti_torch_mm_out(0)": ("aoti_torch_mm_out",),
    "aoti_torch_proxy_executor_call_function(0)": ("aoti_torch_proxy_executor_call_function",),
    "cublasSgemm_v2(0)": ("cublasSgemm_v2",),
    "cudnnConvolutionForward(0)": ("cudnnConvolutionForward",),
    "cufftExecC2C(0)": ("cufftExecC2C",),
}
HONEST = (
    "expf(1)",
    "aoti_torch_empty_strided(0); aoti_torch_get_data_ptr(0); aoti_torch_call_dispatcher(0)",
    "TensorBase().data_ptr()",
    "_ops::mm::call({})",
    "_ops::mm::call({}); std::thread::_M_start_thread(1)",
    "_ops::empty_like::call({}); GOMP_parallel(0); get_thread_num()",
    "_ops::empty_like::call({}); std::thread::_M_start_thread(1)",
    "_ops::empty_like::redispatch({})",
    "cpu::is_avx512_supported()",
    "native::canUse32BitIndexMath({}); native::view({})",
    "cuda::getCurrentCUDABlasHandle(); cublasCreate_v2(0)",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Build a shared library around one statement."""
    folder = tmp_path_factory.mktemp("libraries")

    def build(statement, *flags):
        source, made = folder / "unit.cpp", folder / "unit.so"
        source.write_text(f"{DECLARED}\nint out;\nvoid f() {{ {statement}; }}\n")
        command = [find_compiler(), "-shared", "-fPIC", "-O1", *flags, "-o", made, source]
        subprocess.run(command, check=True, capture_output=True)
        return made

    return build


@pytest.mark.parametrize("statement", HIDDEN)
def test_work_done_elsewhere_is_named(library, statement):
    work = library_work(needed_symbols(library(statement)))
    assert work == LibraryWork(HIDDEN[statement])
    (finding,) = work.findings()
    assert finding.code == "hidden_library_work" and finding.severity is Severity.HARD
    assert all(name.removesuffix("::call") in finding.message for name in work.hidden)


@pytest.mark.parametrize(
    "symbol",
    [
        *("sgemm_64_", "SGEMM_64", "sgemm_batch", "gemm_bf16bf16f32_compute", "GEMM_S8U8S32"),
        *("idamax_", "dgesdd", "ZHEEVD", "vmsSin", "vdlog_", "VDSQRT", "nnp_relu_output"),
        *("pytorch_qnnp_fully_connected", "mklgDFTFwdBatch", "dfti_compute_forward_s"),
        *("uv_dlsym", "PySys_GetObject", "PyNumber_MatrixMultiply"),
        "_ZN2at14DynamicLibrary3symEPKc",
        "_ZN5torch3jit12StaticModuleC1ERKNS0_6ModuleE",
        "_ZN5torch3jit10tensorexpr7LoopNest7prepareEv",
        "_ZN5torch8autograd8profiler15disableProfilerEv",
    ],
)
def test_functions_of_libraries_inside_torch_are_named(symbol):
    assert len(library_work(frozenset((symbol,))).hidden) == 1


@pytest.mark.parametrize(
    "symbol",
    [
        *("sqrtf", "strcpy", "snprintf", "vsnprintf", "vdprintf", "syscall", "setenv", "cosf"),
        *("dgettext", "stpcpy", "sched_yield", "clock_gettime", "memcpy", "sincosf", "div"),
        *("Sleef_expf16_u10", "pthreadpool_create", "GOMP_parallel", "PyObject_Call"),
        *("cudaLaunchKernel", "__cudaRegisterFatBinary", "PyExc_ValueError", "stderr"),
    ],
)
def test_functions_of_the_language_are_not(symbol):
    assert library_work(frozenset((symbol,))) == NOTHING_LEFT


@pytest.mark.parametrize("statement", HONEST)
def test_what_kernels_need_is_theirs(library, statement):
    assert library_work(needed_symbols(library(statement))) == NOTHING_LEFT


def test_the_libraries_of_a_device_may_stand_beside_own_kernels(library):
    work = library_work(needed_symbols(library("cublasSgemm_v2(0); cudaLaunchKernel(0)")))
    assert work == LibraryWork((), ("cublasSgemm_v2",))
    assert [finding.severity for finding in work.findings()] == [Severity.SOFT]


@pytest.mark.parametrize(
    "flags",
    [("-s",), ("-Wl,-z,now",), ("-Wl,--hash-style=sysv",), ("-fvisibility=hidden", "-g")],
)
def test_no_linker_flag_hides_a_name(library, flags):
    names = needed_symbols(library("sgemm_(0); native::gemm(0); out = mkl_serv_flag", *flags))
    assert {"sgemm_", "mkl_serv_flag"} < names and not any("6gemm_" in name for name in names)
    assert library_work(names).hidden == ("at::native::gemm", "mkl_serv_flag", "sgemm_")


def test_own_functions_of_such_names_are_own(library):
    made = library('sgemm_(0); } extern "C" void sgemm_(const char*) { out = 3')
    assert library_work(needed_symbols(made)) == NOTHING_LEFT


def test_lost_section_headers_hide_nothing(library, tmp_path):
    data = bytearray(library("sgemm_(0)").read_bytes())
    data[40:48], data[60:64] = bytes(8), bytes(4)
    (tmp_path / "bare.so").write_bytes(data)
    assert "sgemm_" in needed_symbols(tmp_path / "bare.so")


@pytest.fixture(scope="module")
def sound(library):
    return library("sgemm_(0)").read_bytes()


@settings(deadline=None)
@given(st.data())
def test_broken_files_are_refused_or_read(sound, tmp_path_factory, data):
    whole = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, 1023))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("broken") / "broken.so"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        assert isinstance(needed_symbols(path), frozenset)
    except ValueError as error:
        assert str(error)


def test_device_functions_are_symbols_and_no_text(library):
    stub = "_Z30__device_stub__Z10scale_rowsPfPf"
    statement = f'out = 1; }} extern "C" void {stub}() {{ out = 2'
    text = '; } const char* const said = "_Z9__device_stub__Z4gemmPf"; void g() { out = said[out]'
    data = library(statement + text).read_bytes()
    assert device_functions(data) == {stub}
    inlined = library(f"out = 1; }} int _ZZL{stub}E8__handle = 3; void g() {{").read_bytes()
    assert device_functions(inlined) == {f"_ZZL{stub}E8__handle"}
    assert device_functions(data[:1000]) == device_functions(b"") == frozenset()


def test_two_libraries_count_together():
    work = LibraryWork(("a", "b")) | LibraryWork(("b", "c"), ("d",)) | NOTHING_LEFT
    assert work == LibraryWork(("a", "b", "c"), ("d",))
    assert NOTHING_LEFT.findings() == ()
    assert [found.code for found in LibraryWork((), ("d",)).findings()] == ["library_work"]


DIRECT = '''
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <ATen/ops/gelu_cpu_dispatch.h>
torch::Tensor f(torch::Tensor x) { return at::cpu::gelu(x); }
"""
extension = load_inline(name="direct_ext", cpp_sources=SOURCE, functions=["f"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.f(x)
'''


@pytest.mark.slow
def test_an_extension_that_calls_torch_past_the_dispatcher_is_rejected(strict, cache_dir):
    made = problem("return nn.functional.gelu(x)", "torch.rand(30, 40)")
    assert strict.evaluate(made, Kernel(DIRECT, "cpp")).correct  # asks for no custom kernel
    rules = dataclasses.replace(RULESETS["strict"], limits=TIGHT)
    for _ in range(2):  # a library from the folder, too
        with LocalEvaluator(ruleset=rules, timing=False, cache_dir=cache_dir) as judge:
            verdict = judge.evaluate(made, Kernel(DIRECT, "cpp"))
        assert verdict.status is Status.REJECTED and "at::cpu::gelu" in verdict.message
        assert verdict.findings[0].code == "hidden_library_work"
        assert verdict.trials_passed == verdict.trials
