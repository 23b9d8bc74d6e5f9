"""CUDA extensions as far as they go without a GPU: flags, logs, units, toolkits; nvcc if there."""

import dataclasses
import os
import shutil
import sysconfig
import time
from types import SimpleNamespace

import pytest

from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge.compiling import builder as builders
from kernelgym.judge.compiling import cuda_toolkit as cuda_toolkits
from kernelgym.judge.compiling.builder import Builder
from kernelgym.judge.compiling.compiler_process import FAILED
from kernelgym.judge.compiling.cuda_toolkit import cuda_toolkit, find_nvcc
from kernelgym.judge.compiling.missing_headers import missing_from_thin
from kernelgym.judge.compiling.request import BadRequest, read_request
from kernelgym.judge.compiling.source import BINDING_UNIT, CUDA_UNIT, UNIT, compile_flags, units
from kernelgym.judge.sandbox.paths import readable_paths
from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import Limits

EMPTY_LIBRARY = b"\x7fELF\x02\x01".ljust(64, b"\0")
DECLARATION = "torch::Tensor f(torch::Tensor x);"
KERNEL = """
__global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.f);
}
torch::Tensor f(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "x must be on a CUDA device");
  auto y = torch::empty_like(x);
  int n = x.numel();
  relu<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""


def _request(cuda=KERNEL, cpp=DECLARATION, functions=("f",), **more):
    named = None if functions is None else {name: name for name in functions}
    sources = {"cpp_sources": [cpp], "cuda_sources": [cuda]}
    return {"name": "ext", "functions": named, **sources, **more}


# --- flags --------------------------------------------------------------------------------------
USUAL = [
    (["-O3", "--use_fast_math", "-use_fast_math", "-lineinfo"], None),
    (["-std=c++17", "--expt-extended-lambda", "--extra-device-vectorization"], None),
    (["-gencode=arch=compute_90a,code=sm_90a", "-m64", "-DX=1", "-U__CUDA_NO_HALF2__"], None),
    (["-gencode arch=compute_90,code=sm_90"], ["-gencode=arch=compute_90,code=sm_90"]),
    (["-gencode=arch=compute_90,code=[sm_90,compute_90]"], None),
    (["-arch", "sm_90a", "-Xptxas", "-O3,-v"], ["-arch=sm_90a", "-Xptxas=-O3,-v"]),
    (["--ptxas-options=-v,--warn-on-spills", "-maxrregcount=64"], None),
    (["--maxrregcount 64 -Xptxas=-dlcm=ca"], ["--maxrregcount=64", "-Xptxas=-dlcm=ca"]),
    (["-Xcompiler '-O3 -march=native'"], ["-Xcompiler=-O3 -march=native"]),
    (["-Xcompiler", "-fPIC,-fopenmp"], ["-Xcompiler=-fPIC,-fopenmp"]),
    (["-D", "N=4", "--fmad=false", "-I/usr/include"], ["-DN=4", "--fmad=false", "-I/usr/include"]),
]


@pytest.mark.parametrize(("given", "taken"), USUAL)
def test_usual_flags_are_taken(given, taken):
    assert read_request(_request(cuda_cflags=given), cuda=True).cuda_cflags == tuple(taken or given)


@pytest.mark.parametrize(
    "flags",
    [
        *(["-o", "/tmp/x"], ["-ccbin=/tmp/cc"], ["--compiler-bindir", "/tmp"], ["-run"], ["-E"]),
        *(["-Xcompiler", "-fplugin=/tmp/x.so"], ["-Xcompiler=-O3,-o,/tmp/x"], ["-Xcompiler"]),
        *(["--options-file=/tmp/x"], ["-Xptxas", "-o,/tmp/x"], ["-Xlinker", "-rpath"]),
        *(["-rdc=true"], ["-dlto"], ["-keep"], ["-Xcompiler=-O3;id"], ["-DX=$(id)"], ["'"]),
        *(["-arch=sm_90;id"], ["-maxrregcount"], ["-optf", "x"], ["--dryrun"], ["kernel.cu"]),
    ],
)
def test_other_flags_are_refused(flags):
    with pytest.raises(BadRequest, match=r"not allowed|cannot be split"):
        read_request(_request(cuda_cflags=flags), cuda=True)


def test_libraries_of_cuda_are_for_cuda_devices():
    flags = ["-lcublas", "-lcuda", "-L/usr/local/cuda/lib64"]
    assert read_request(_request(ldflags=flags), cuda=True).ldflags == tuple(flags)
    with pytest.raises(BadRequest, match="-lcublas"):
        read_request({**_request(ldflags=flags), "cuda_sources": []})
    with pytest.raises(BadRequest, match="-lsecret"):
        read_request(_request(ldflags=["-lsecret"]), cuda=True)


def test_a_standard_is_named_once():
    def standards(*flags):
        unit = units(read_request(_request(cuda_cflags=list(flags)), cuda=True))[-1]
        return [flag for flag in compile_flags(unit, True) if "std" in flag]

    assert standards("-O3") == ["-std=c++20"]
    assert standards("-std=c++17") == ["-std=c++17"]
    assert standards("-std", "c++14") == ["-std=c++20"]


# --- what nvcc says -----------------------------------------------------------------------------
CONTEXT = "#include <ATen/cuda/CUDAContext.h>\n"


@pytest.mark.parametrize(
    ("log", "source", "missing"),
    [
        ('error: namespace "torch" has no member "stack"', "", True),
        ('error: namespace "torch" has no member "emptyy"', "", False),
        ('error: namespace "std" has no member "regex_mattch"', "", False),
        ('error: identifier "TORCH_ARG" is undefined', "", True),
        ('error: identifier "TORCH_AARG" is undefined', "", False),
        ('error: identifier "size" is undefined', "", False),
        ('error: namespace "at::cuda" has no member "getCurrentCUDABlasHandle"', CONTEXT, True),
        # Without torch's CUDA header the real ones would not declare it either.
        ('error: namespace "at::cuda" has no member "getCurrentCUDABlasHandle"', "", False),
        (
            'error: name followed by "::" must be a class or namespace name\n  torch::nn::x',
            "",
            True,
        ),
        (
            'error: name followed by "::" must be a class or namespace name\n  mine::nn::x',
            "",
            False,
        ),
        (
            'error: list-initialization of an object type "const at::ITensorListRef" is not allowed'
            " because the type is incomplete",
            "",
            True,
        ),
        ('error: class "at::Tensor" has no member "rellu"', "x.rellu()", False),
        ('error: class "Mine" has no member "relu_"', "", False),
        ("kernel.cu:1:10: fatal error: torch/csrc/x.h: No such file or directory", "", True),
        ("kernel.cu:1:10: fatal error: mine.h: No such file or directory", "", False),
        ("ptxas error   : Entry function 'k' uses too much shared data (0x20000 bytes)", "", False),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_30'", "", False),
    ],
)
def test_a_second_attempt_is_made_where_the_real_headers_help(log, source, missing):
    line = log if log.startswith(("kernel.cu:", "ptxas", "nvcc")) else f"kernel.cu(3): {log}"
    assert missing_from_thin(f"{line}\n1 error detected\n", source) is missing


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ('/x/torch/include/c10/util/x.h(9): error: namespace "thrust" has no member "tan"', True),
        ("ATen/core/TensorBody.h:9:1: error: ‘x’ is not a member of ‘at::_ops’", True),
        ("/x/torch/include/ATen/x.h:9:1: error: static assertion failed: no floats", False),
        ('kernel.cu(9): error: namespace "mine" has no member "tan"', False),
    ],
)
def test_errors_within_torch_s_headers_are_ours_to_mend(line, missing):
    assert missing_from_thin(line + "\n", "") is missing


# --- with stand-ins for nvcc --------------------------------------------------------------------
NVCC = """#!/bin/sh
case "$*" in
  *--version*) echo 'Cuda compilation tools, release 13.0, V13.0.88' ;;
  *--list-gpu-code*) echo sm_80; echo sm_90 ;;
  *--dryrun*) echo '#$ TOP={home}/bin/..' >&2 ;;
esac
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A toolkit's folder with an nvcc that answers questions only."""
    folder = tmp_path / "toolkit"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/nvcc").write_text(NVCC.format(home=folder))
    (folder / "bin/nvcc").chmod(0o755)
    for name in ("include", "lib64/stubs"):
        (folder / name).mkdir(parents=True)
    for name in ("libcudart.so.13", "libcublas.so.13", "stubs/libcuda.so"):
        (folder / "lib64" / name).touch()
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(folder))
    return folder


@pytest.fixture
def staged(home, tmp_path, monkeypatch):
    """A builder whose compilers say what the test wants, by unit and attempt."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    made = Builder(tmp_path / "cache", scratch, "limits", Limits(), (), (9, 0))
    made.commands, made.logs = [], {}

    def start(command, folder):
        made.commands.append(command)
        said = made.logs.get(command[-3], [])
        log = said.pop(0) if said else ""
        (folder / command[-1]).write_bytes(EMPTY_LIBRARY)
        running = SimpleNamespace(finish=lambda limit: log, end=lambda: None, scratch=folder)
        running.process = SimpleNamespace(pid=os.getpid())
        return running

    monkeypatch.setattr(made, "_start", start)
    return made


def _of(builder, unit):
    return [command for command in builder.commands if command[-3] == unit]


@pytest.mark.slow
def test_units_are_compiled_side_by_side_and_linked_with_the_runtime(staged, home):
    assert staged.build(_request(ldflags=["-lcublas", "-lcuda", "-L/x"])).path
    assert {command[-3] for command in staged.commands[:3]} == {UNIT, CUDA_UNIT, str(BINDING_UNIT)}
    (nvcc,), link = _of(staged, CUDA_UNIT), staged.commands[-1]
    assert f"{home}/bin/nvcc" in nvcc and "-gencode=arch=compute_90,code=sm_90" in nvcc
    assert f"{home}/include" in _of(staged, UNIT)[0]
    names = [part.rpartition("/")[2] for part in link]
    assert {"unit.cpp.o", "unit.cu.o", "binding.o", "libcublas.so.13", "libcuda.so"} <= {*names}
    assert any("libcudart.so" in name for name in names) and "-L/x" not in link


def test_a_kernel_may_name_its_architecture(staged):
    assert staged.build(_request(cuda_cflags=["-arch=sm_90a"])).path
    (nvcc,) = _of(staged, CUDA_UNIT)
    assert "-arch=sm_90a" in nvcc and not any("-gencode" in part for part in nvcc)


def test_only_the_unit_that_misses_something_is_compiled_again(staged):
    missing = FAILED + 'kernel.cu(3): error: namespace "torch" has no member "stack"\n'
    staged.logs = {CUDA_UNIT: [missing]}
    built = staged.build(_request())
    assert built.path and built.module.endswith("kernelgym_extension")
    assert (len(_of(staged, CUDA_UNIT)), len(_of(staged, UNIT))) == (2, 1)
    thin, full = (any("judge/compiling/thin" in part for part in c) for c in _of(staged, CUDA_UNIT))
    assert thin and not full
    missing = FAILED + "kernel.cpp:1:1: error: ‘nn’ is not a member of ‘torch’\n"
    staged.commands.clear()
    staged.logs = {UNIT: [missing]}
    built = staged.build(_request(cpp=DECLARATION + " "))
    assert built.path and built.module.endswith(".ext")
    assert (len(_of(staged, CUDA_UNIT)), len(_of(staged, UNIT))) == (1, 2)
    assert not any(part.endswith("/binding.o") for part in staged.commands[-1])


def test_mistakes_in_both_units_are_told_and_compiled_once(staged):
    staged.logs = {
        CUDA_UNIT: [FAILED + 'kernel.cu(3): error: identifier "y" is undefined\n'],
        UNIT: [FAILED + "kernel.cpp:1:1: error: ‘f’ was not declared in this scope\n"],
    }
    built = staged.build(_request())
    assert not built.path and 'identifier "y"' in built.log and "‘f’" in built.log
    assert "\0" not in built.log and len(staged.commands) == 3
    assert staged.build(_request()).cached and len(staged.commands) == 3


def test_sources_that_bind_themselves_are_thin_with_torch_s_bindings(staged, tmp_path):
    binding = '\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }'
    built = staged.build(_request(KERNEL + binding, "", None))
    assert built.path and built.module.endswith(".ext")
    (nvcc,) = [command for command in staged.commands if "-c" in command]
    assert nvcc[-3] == CUDA_UNIT and any("judge/compiling/thin" in part for part in nvcc)
    assert sysconfig.get_paths()["include"] in nvcc
    assert not any(part.endswith("/binding.o") for part in staged.commands[-1])
    staged.commands.clear()
    missing = FAILED + 'kernel.cu(3): error: namespace "torch" has no member "jit"\n'
    staged.logs = {CUDA_UNIT: [missing]}
    assert staged.build(_request(KERNEL + binding + " ", "", None)).module.endswith(".ext")
    assert [any("judge/compiling/thin" in part for part in c) for c in _of(staged, CUDA_UNIT)] == [
        True,
        False,
    ]


def test_a_library_is_for_one_capability(staged, tmp_path):
    here = staged.build(_request())
    staged._capability = (8, 0)
    there = staged.build(_request())
    assert there.path and there.path != here.path and not there.cached


def test_no_nvcc_is_said(staged, home, monkeypatch):
    (home / "bin/nvcc").unlink()
    with pytest.raises(UnsupportedLanguage, match=r"no nvcc found in CUDA_HOME.*or use language"):
        find_nvcc()
    built = staged.build(_request())
    assert not built.path and "no nvcc found" in built.log and built.may_pass_later
    assert staged.build({**_request(cpp=KERNEL), "cuda_sources": []}).path  # C++ needs none
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UnsupportedLanguage, match="on the PATH"):
        find_nvcc()


def test_a_toolkit_that_does_not_fit_is_said(home, monkeypatch):
    with pytest.raises(UnsupportedLanguage, match="sm_120, only for sm_80, sm_90"):
        cuda_toolkit(find_nvcc(), (12, 0))
    cuda_toolkit.cache_clear()
    monkeypatch.setattr("torch.version.cuda", "12.8")
    with pytest.raises(
        UnsupportedLanguage, match=r"CUDA 13.0.88 and torch was built for CUDA 12.8"
    ):
        cuda_toolkit(find_nvcc(), (9, 0))
    cuda_toolkit.cache_clear()


def test_an_nvcc_that_is_a_script_leads_to_its_toolkit(home, tmp_path, monkeypatch):
    script = tmp_path / "elsewhere/bin/nvcc"
    script.parent.mkdir(parents=True)
    shutil.copy(home / "bin/nvcc", script)
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")
    toolkit = cuda_toolkit(find_nvcc(), (9, 0))
    assert (toolkit.root, toolkit.nvcc) == (str(home), f"{home}/bin/nvcc")


def test_driver_s_library_is_linked_by_its_path_where_the_toolkit_has_no_stub(home, monkeypatch):
    toolkit = dataclasses.replace(cuda_toolkit(find_nvcc(), (9, 0)), library_folders=())
    driver = "/usr/lib/libcuda.so.1"
    monkeypatch.setattr(cuda_toolkits, "driver_libraries", lambda: (driver,))
    assert toolkit.link_flag("-lcuda") == driver
    monkeypatch.setattr(cuda_toolkits, "driver_libraries", tuple)
    assert toolkit.link_flag("-lcuda") is None  # nothing is loaded where there is no driver
    assert toolkit.link_flag("-lcublas") == "-lcublas"


def test_extension_is_built_for_its_language_s_architecture(home, tmp_path, monkeypatch):
    asked = []

    def refuse(nvcc, capability, suffix):
        asked.append(suffix)
        raise UnsupportedLanguage("not here")

    monkeypatch.setattr(builders, "cuda_toolkit", refuse)
    made = Builder(tmp_path / "cache", tmp_path, "limits", Limits(), readable_paths(), (9, 0))
    language = dataclasses.replace(LANGUAGES["cuda"], architecture_suffix="a")
    for each in (None, LANGUAGES["cuda"], language):
        assert made.build(_request(), language=each).log == "not here"
    assert asked == ["", "", "a"]


# --- with nvcc ----------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no CUDA toolkit here")
@pytest.mark.parametrize("tier", ["ns+landlock+seccomp", "landlock+seccomp"])
def test_nvcc_runs_in_the_sandbox(tmp_path, cache_dir, tier):
    limits = Limits(build_s=900.0, file_bytes=1 << 20)
    made = Builder(cache_dir / "builds", tmp_path, tier, limits, readable_paths(), (9, 0))
    built = made.build(_request(KERNEL + f"// {time.time()}"))
    assert built.path, built.log
    (kernel,) = built.code.functions
    assert "relu" in kernel.name and kernel.registers and not kernel.spilled_bytes
    text = _request('#include "/etc/passwd"\n' + KERNEL)
    assert "Permission denied" in made.build(text).log
