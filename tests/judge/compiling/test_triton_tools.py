"""What Triton starts programs for is done once for every text, in a sandbox, for who asks."""

import contextlib
import importlib.util
import os
import subprocess
import sys

import pytest

from kernelgym.judge.compiling import builder as builder_module
from kernelgym.judge.compiling import programs
from kernelgym.judge.compiling.builder import Builder
from kernelgym.judge.compiling.compiler_process import (
    BuildLimit,
    ReadyCompiler,
    bounded,
    has_failed,
    start,
)
from kernelgym.judge.sandbox.paths import readable_paths
from kernelgym.judge.untrusted import zygote
from kernelgym.judge.untrusted.sandbox.sandbox import TIERS, SandboxPlan
from kernelgym.judge.untrusted.triton import tools
from kernelgym.rulesets import Limits

MODULE = """
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *none) { return PyLong_FromLong(NUMBER); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, 0}, {0}};
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "__triton_launcher", 0, -1, methods};
PyMODINIT_FUNC PyInit___triton_launcher(void) { return PyModule_Create(&def); }
"""


def source(number):
    return MODULE.replace("NUMBER", str(number))


@pytest.fixture
def builder(tmp_path):
    (tmp_path / "scratch").mkdir()
    limits = Limits()
    return Builder(tmp_path / "cache", tmp_path / "scratch", "limits", limits, readable_paths())


def answer_of(path):
    spec = importlib.util.spec_from_file_location("__triton_launcher", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.answer()


def test_a_launcher_is_built_once_and_each_source_has_its_own(builder, tmp_path):
    first = builder.build({"program": "launcher", "source": source(7)})
    assert first.path and not first.cached and answer_of(first.path) == 7
    again = builder.build({"program": "launcher", "source": source(7)})
    assert again.cached and again.path == first.path
    assert answer_of(builder.build({"program": "launcher", "source": source(8)}).path) == 8
    assert os.listdir(tmp_path / "scratch") == []


def test_what_does_not_compile_is_told_and_not_kept(builder):
    for _ in range(2):
        built = builder.build({"program": "launcher", "source": "int main( {"})
        assert not built.path and not built.cached and "error" in built.log


def test_it_may_not_read_what_candidates_may_not(builder, tmp_path):
    secret = tmp_path / "secret.h"
    secret.write_text("#define NUMBER 9\n")
    confined = Builder(
        tmp_path / "cache", tmp_path / "scratch", "landlock+seccomp", Limits(), readable_paths()
    )
    included = f'#include "{secret}"\n{MODULE}'
    assert builder.build({"program": "launcher", "source": included}).path  # without walls it can
    built = confined.build({"program": "launcher", "source": included + "\n"})
    assert not built.path and "secret.h" in built.log


def test_launcher_has_the_limit_of_triton(tmp_path, monkeypatch):
    allowed = []
    monkeypatch.setattr(builder_module.programs, "run", lambda *given: allowed.append(given[3]))
    limits = Limits(build_s=7.0, triton_build_s=3.0)
    made = Builder(tmp_path / "cache", tmp_path, "limits", limits, ())
    made.build({"program": "launcher", "source": "int a;"})
    made.build({"program": "ptxas", "source": "", "options": []})
    assert allowed == [3.0, 3.0]


CONFINED = """
import json, os, subprocess, sys, threading
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.build import compile_module_from_src
from kernelgym.judge.untrusted import zygote
from kernelgym.judge.untrusted.triton import tools
from kernelgym.judge.compiling.builder import Builder
from kernelgym.judge.compiling.compiler_process import (
    BuildLimit,
    ReadyCompiler,
    bounded,
    has_failed,
    start,
)
from kernelgym.judge.sandbox.paths import readable_paths
from kernelgym.judge.untrusted.sandbox.sandbox import TIERS, SandboxPlan
from kernelgym.rulesets import Limits
from pathlib import Path

folder, launcher = Path(sys.argv[1]), sys.argv[2]
builder = Builder(folder / "cache", folder, "limits", Limits(), readable_paths())
asked, start = [], subprocess.Popen.__init__

def request(what):
    asked.append(what["program"])
    subprocess.Popen.__init__ = start  # it is the trusted side that starts programs
    built = builder.build(what)
    subprocess.Popen.__init__ = refuse
    if not built.path:
        return {"failed": built.log}
    return {"module": built.module, "fds": [os.open(built.path, os.O_RDONLY)]}

def refuse(*args, **kwargs):
    raise PermissionError("programs may not be started here")

@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

tools.look_up_tools(90)
tools.replace_tools(request)
subprocess.Popen.__init__ = refuse
source = ASTSource(fn=double, signature={"x": "*fp32", "n": "i32", "BLOCK": "constexpr"},
                   constexprs={"BLOCK": int(sys.argv[3])})
compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
assert compiled.asm["cubin"][:4] == bytes([0x7F]) + b"ELF", compiled.asm["cubin"][:4]
assert compile_module_from_src(launcher, "__triton_launcher").answer() == 7
assert asked == ["ptxas", "launcher"], asked
"""


def test_triton_compiles_in_a_process_that_may_start_nothing(tmp_path):
    (tmp_path / "source.py").write_text(CONFINED)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "source.py"), str(tmp_path), source(7), "128"],
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton"), "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


KERNEL = """
import triton
import triton.language as tl

@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)
"""
COMPILING = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

sys.path.insert(0, sys.argv[1])
from kernel import double

types = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}
source = ASTSource(fn=double, signature=types, constexprs={"BLOCK": 128})
print(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])
"""


def test_what_is_assembled_does_not_depend_on_the_file_that_a_kernel_lies_in(tmp_path):
    found = []
    for name, comment in (("one", ""), ("other", "# one line further down\n")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "kernel.py").write_text(comment + KERNEL)
        done = subprocess.run(
            [sys.executable, "-c", COMPILING, str(folder)],
            env=zygote._private_environment(str(folder)) | {"TRITON_INTERPRET": "0"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert "double" in found[0] and found[0] == found[1]


PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry nothing() { ret; }
"""


def test_ptx_is_assembled_once(builder):
    options = ["-lineinfo", "-v", "--opt-level", "0", "--gpu-name=sm_90"]
    first = builder.build({"program": "ptxas", "source": PTX, "options": options})
    assert first.path and not first.cached
    with open(first.path, "rb") as file:
        assert file.read(4) == b"\x7fELF"
    again = builder.build({"program": "ptxas", "source": PTX, "options": options})
    assert again.cached and again.code == first.code
    (kernel,) = first.code.functions
    assert kernel.registers and kernel.spilled_bytes == kernel.shared_bytes == 0
    assert not builder.build(
        {"program": "ptxas", "source": PTX, "options": ["--gpu-name=sm_80"]}
    ).path  # not for this one
    broken = builder.build(
        {"program": "ptxas", "source": PTX.replace("ret", "rat"), "options": options}
    )
    assert not broken.path and "rat" in broken.log


OPTIONS = ["--gpu-name=sm_90"]


@pytest.mark.parametrize("tier", TIERS)
def test_who_stands_by_assembles_one_kernel(tmp_path, tier):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    builder = Builder(tmp_path / "cache", scratch, tier, Limits(), readable_paths())
    builder.stand_by()
    builder.stand_by()
    assert len(list(scratch.iterdir())) == 1
    built = builder.build({"program": "ptxas", "source": PTX, "options": OPTIONS})
    assert built.path and not built.cached
    assert not list(scratch.iterdir())  # it is gone, with its folder
    assert builder.build(
        {"program": "ptxas", "source": PTX + "// again", "options": OPTIONS}
    ).path  # by another one
    builder.stand_by()
    builder.close()
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(("prompt_s", "times"), [(60.0, 0), (0.0, 1)])
def test_nobody_goes_first_for_what_takes_no_time(builder, monkeypatch, prompt_s, times):
    gone = []

    @contextlib.contextmanager
    def away():
        gone.append("out")
        yield
        gone.append("back")

    monkeypatch.setattr(programs, "_PROMPT_S", prompt_s)
    for _ in range(2):  # the second time it is there already
        assert builder.build({"program": "ptxas", "source": PTX, "options": OPTIONS}, away).path
    assert gone == ["out", "back"] * times


def test_who_fell_while_it_stood_by_is_replaced(builder, tmp_path):
    builder.stand_by()
    builder._standing._process.kill()
    builder._standing._process.wait()
    assert builder.build({"program": "ptxas", "source": PTX, "options": OPTIONS}).path
    assert not list((tmp_path / "scratch").iterdir())


def test_a_sandbox_whose_owner_is_gone_ends_by_itself(tmp_path):
    plan = SandboxPlan("limits", str(tmp_path), (), (), 0, 1 << 30, 64, 256, exec_allowed=True)
    ready = ReadyCompiler(plan)
    ready._process.stdin.close()
    assert ready._process.wait(30) == 0


def test_what_is_told_to_a_sandbox_can_read_nothing_more_of_it(tmp_path):
    plan = SandboxPlan("limits", str(tmp_path), (), (), 0, 1 << 30, 64, 256, exec_allowed=True)
    ready = ReadyCompiler(plan)
    log = ready.run(["cat"]).finish(BuildLimit(30.0))
    ready.end()
    assert log == "" and not tmp_path.exists()


@pytest.mark.parametrize(("command", "said"), [("exit 0", ""), ("echo no; exit 3", "no")])
def test_a_compilers_end_is_waited_for(tmp_path, command, said):
    plan = SandboxPlan("limits", str(tmp_path), (), (), 0, 1 << 30, 64, 256, exec_allowed=True)
    running = start(["sh", "-c", command], plan)
    log = running.finish(BuildLimit(30.0))
    assert bounded(log) == said and has_failed(log) is bool(said)


def test_a_compiler_that_takes_too_long_is_ended(tmp_path):
    plan = SandboxPlan("limits", str(tmp_path), (), (), 0, 1 << 30, 64, 256, exec_allowed=True)
    running = start(["sleep", "600"], plan)
    log = running.finish(BuildLimit(0.01))
    assert bounded(log) == "the build took longer than 0.01 s" and has_failed(log)
    assert running.process.poll() is not None


@pytest.mark.parametrize(
    "option",
    ["-o", "/etc/passwd", "@file", "-o=x/y", "--options-file=/etc/passwd", "", "a", None, "-a b"],
)
def test_options_that_name_files_are_refused(builder, option):
    if option == "-o":  # by itself it would take the source for its output
        built = builder.build({"program": "ptxas", "source": PTX, "options": ["-o", "kernel.ptx"]})
    else:
        built = builder.build({"program": "ptxas", "source": PTX, "options": [option]})
    assert not built.path and "refused" in built.log


@pytest.mark.parametrize(
    "options", [["--gpu-name=sm_" + "9" * 5000], ["-v"] * 101, ["--a=" + "b" * 300_000], ["\u0663"]]
)
def test_absurd_options_are_refused(builder, options):
    built = builder.build({"program": "ptxas", "source": PTX, "options": options})
    assert not built.path and built.log.startswith("error: ")


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_assembler_without_an_output_fails(builder, option):
    built = builder.build({"program": "ptxas", "source": PTX, "options": [option]})
    assert not built.path and "kernel.cubin" in built.log


def test_what_is_no_list_of_options_is_refused(builder):
    assert "refused" in builder.build({"program": "ptxas", "source": PTX, "options": "-v"}).log


def test_triton_can_be_warmed_without_a_device():
    tools.compile_something(90)
