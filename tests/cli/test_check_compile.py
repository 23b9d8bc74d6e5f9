"""`kernelgym check --compile-only`: exit codes, complaints, and what it refuses to compile."""

from __future__ import annotations

import json

import pytest

import kernelgym.judge
from kernelgym.cli.check_compile import target_of
from kernelgym.compile_result import CompileResult
from kernelgym.errors import UsageError

COMPILE = ("check", "right.py", "--problem", "problem.py", "--compile-only", "--arch", "gfx942")


@pytest.fixture
def compiler(monkeypatch):
    """Put a compiler with a settable result in the place of the real one."""

    class FakeCompiler:
        result = CompileResult(2, ())

        def __init__(self, device, rules, timing, memory_bytes):
            type(self).target, type(self).precision = rules.front_end, rules.precision

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def compile_only(self, problem, kernel):
            return self.result

    monkeypatch.setattr(kernelgym.judge, "LocalEvaluator", FakeCompiler)
    return FakeCompiler


def test_compile_only_of_a_kernel_that_compiles_exits_0_and_says_no_verdict(run, folder, compiler):
    code, out, err = run(*COMPILE)
    assert (code, err, compiler.target) == (0, "", "hip:gfx942")
    assert "compiled for gfx942: 2 launches" in out and "not a verdict" in out
    assert compiler.precision == "own"


def test_compile_only_in_another_precision_compiles_for_it(run, folder, compiler):
    compiler.result = CompileResult(1, ())
    arguments = [*COMPILE, "--precision", "fp16", "--language", "tilelang", "--arch", "sm_90a"]
    code, out, err = run(*arguments)
    assert (code, err, compiler.precision) == (0, "", "fp16")
    assert "compiled for sm_90a: 1 kernel\n" in out


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (CompileResult(1, ("k: CompilationError: bad (line 3, in k)",)), "(line 3, in k)"),
        (CompileResult(0, ()), "no Triton kernel was launched or built"),
    ],
    ids=["complaint", "no launch"],
)
def test_compile_only_of_a_kernel_that_does_not_compile_exits_1(
    run, folder, compiler, result, told
):
    compiler.result = result
    code, out, _ = run(*COMPILE)
    assert code == 1 and "not compiled" in out and told in out
    code, out, _ = run(*COMPILE, "--json")
    found = json.loads(out)
    assert code == 1 and not found["compiled"] and told in found["complaints"][0]
    assert "not a verdict" in found["note"] and "status" not in found


def test_compile_only_of_a_kernel_in_another_language_names_that(run, folder, compiler):
    compiler.result = CompileResult(0, ("RuntimeError: [Errno 1] Operation not permitted",))
    code, out, _ = run(*COMPILE, "--language", "cute", "--arch", "sm_90a")
    told = "no function is decorated with cutlass.cute.kernel; the answer looks like language"
    assert code == 1 and f"{told} 'triton'" in out and "Errno 1" in out


@pytest.mark.parametrize(
    ("arch", "target"),
    [
        *(("gfx942", "hip:gfx942"), ("gfx90a", "hip:gfx90a"), ("gfx1100", "hip:gfx1100")),
        *(("sm_90a", "cuda:90a"), ("sm_90", "cuda:90"), ("sm_100", "cuda:100")),
    ],
)
def test_target_of_an_architecture_is_the_compilers_name(arch, target):
    assert target_of(arch) == target


@pytest.mark.parametrize("arch", ["", "mi300x", "gfx", "sm_", "90", "gfx942:xnack", "sm_9"])
def test_target_of_an_unknown_architecture_names_known_ones(arch):
    with pytest.raises(UsageError, match="gfx942"):
        target_of(arch)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--language", "cuda"), "'cuda' is not compiled for gfx942"),
        (("--language", "hip", "--arch", "sm_90a"), "'hip' is not compiled for sm_90a"),
        (("--language", "cpp"), "--compile-only compiles: triton, hip"),
        (("--replay", "ab"), "--replay cannot be combined"),
    ],
)
def test_compile_only_of_what_is_not_compiled_is_a_usage_error(run, folder, more, told):
    code, _, err = run(*COMPILE, *more)
    assert code == 2 and told in err


def test_compile_only_without_a_problem_says_what_it_is_for(run, folder):
    code, _, err = run("check", "right.py", "--compile-only", "--arch", "sm_90a")
    assert code == 2 and "--problem" in err


def test_arch_without_compile_only_is_a_usage_error(run, folder):
    code, _, err = run("check", "right.py", "--problem", "problem.py", "--arch", "sm_90a")
    assert code == 2 and "--arch needs --compile-only" in err
