"""Builds that meet bad luck or ill will: hostile logs, slow machines, sandboxes that fail."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import JudgeError
from kernelgym.judge.compiling import builder as builder_module
from kernelgym.judge.compiling import compilation, compiler_process
from kernelgym.judge.compiling.builder import Builder
from kernelgym.judge.compiling.compiler_process import FAILED, BuildLimit
from kernelgym.judge.compiling.cpp_compiler import describe_cpu, find_compiler, toolchain
from kernelgym.judge.compiling.missing_headers import missing_from_thin
from kernelgym.judge.compiling.request import read_request
from kernelgym.judge.compiling.source import BINDING_UNIT, UNIT, compile_flags, units
from kernelgym.judge.sandbox.paths import readable_paths
from kernelgym.judge.untrusted.sandbox import sandbox
from kernelgym.rulesets import Limits

PLAIN = "torch::Tensor f(torch::Tensor x) { return torch::relu(x); }"


def _request(source, functions=("f",), **more):
    named = None if functions is None else {name: name for name in functions}
    return {"name": "ext", "cpp_sources": [source], "functions": named, **more}


# --- flags and logs -----------------------------------------------------------------------------
def _flags(flags, thin):
    (unit,) = units(read_request(_request(PLAIN, cflags=flags)))
    return compile_flags(unit, thin)


def test_standards_that_the_headers_are_past_are_raised():
    given_flags = ["-O3", "-std=c++11", "-std=gnu++14", "-std=c++17", "-std=c++2b"]
    raised = ("-O3", "-std=c++20", "-std=gnu++20")
    assert _flags(given_flags, True) == (*raised, "-std=c++20", "-std=c++2b")
    # torch's own headers still compile as C++17, and its own build would honour the flag.
    assert _flags(given_flags, False) == (*raised, "-std=c++17", "-std=c++2b")


_MEGABYTE = 1 << 20
HOSTILE = {
    "a long word after a quote": "kernel.cpp:1:2: error: #error '" + "a" * _MEGABYTE,
    "many quotes": "kernel.cpp:1:2: error: #error " + "'a" * (_MEGABYTE // 2),
    "many opening quotes": "kernel.cpp:1:2: error: #error " + "‘a" * (_MEGABYTE // 2),
    "the word error": "kernel.cpp:1:2: " + "error: " * (_MEGABYTE // 7),
    "fatal errors": "kernel.cpp:1:2: " + "fatal error: " * (_MEGABYTE // 13),
    "many straight quotes": 'kernel.cu(1): error: identifier "' + 'a"' * (_MEGABYTE // 2),
    "a long namespace": 'kernel.cu(1): error: namespace "torch' + "::a" * (_MEGABYTE // 3),
    "many lines": ("kernel.cpp:1:2: error: '" + "a" * 470 + "\n") * (_MEGABYTE // 500),
    "many lines of quotes": ("error: " + "'a:" * 160 + "\n") * (_MEGABYTE // 500),
    "empty lines": "error:\n" * (_MEGABYTE // 7),
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_a_hostile_log_is_read_in_linear_time(shape):
    assert not missing_from_thin(HOSTILE[shape])  # that this ends is the test


@given(st.lists(st.text(alphabet="a:'‘’ errofatl/<\n", max_size=80), max_size=20))
def test_what_is_missing_is_found_among_other_lines(lines):
    noise = "\n".join(lines) + "\n"
    wanted = "kernel.cpp:3:5: error: ‘nn’ is not a member of ‘torch’; did you mean ‘n’?\n"
    assert not missing_from_thin(noise)
    assert missing_from_thin(noise + wanted) and missing_from_thin(wanted + noise)


# --- with stand-ins for the compiler ------------------------------------------------------------
class _FakeCompilers:
    """Stands in for `Builder._start`; compilers take what time and say what the test wants."""

    def __init__(self, clock, library):
        self.clock, self.commands, self.library = clock, [], library
        self.takes_s = {}
        self.log = ""
        self.writes = True

    def __call__(self, command, scratch):
        self.commands.append(command)

        def finish(limit):
            self.clock[0] += self.takes_s.get(command[-3], 0.0)
            if limit.is_over():
                raise AssertionError(f"{command} is over its deadline")
            if self.writes:
                (scratch / command[-1]).write_bytes(self.library)
            return self.log

        process = SimpleNamespace(pid=os.getpid())
        return SimpleNamespace(finish=finish, end=lambda: None, scratch=scratch, process=process)


@pytest.fixture
def staged(tmp_path, monkeypatch):
    """A builder without a compiler, on a clock of its own."""
    clock = [1000.0]
    toolchain(find_compiler())
    for module in (compilation, compiler_process):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    library = tmp_path / "empty.so"  # whose symbols can be read
    command = [find_compiler(), "-shared", "-x", "c++", os.devnull, "-o", library]
    subprocess.run(command, check=True)
    made = Builder(tmp_path / "cache", scratch, "limits", Limits(build_s=10.0), ())
    made.fake = _FakeCompilers(clock, library.read_bytes())
    monkeypatch.setattr(made, "_start", made.fake)
    return made


def test_a_slow_binding_unit_is_not_charged_to_the_kernel(staged):
    staged.fake.takes_s = {UNIT: 9.0, str(BINDING_UNIT): 300.0}
    assert staged.build(_request(PLAIN)).path
    staged.fake.takes_s = {UNIT: 11.0}
    with pytest.raises(AssertionError, match="over its deadline"):
        staged.build(_request(PLAIN, cflags=["-O1"]))


def test_compiler_without_an_output_fails_the_build(staged):
    staged.fake.writes = False
    built = staged.build(_request(PLAIN, None))
    assert not built.path and built.log == f"error: the compiler wrote no object file for {UNIT}"


def test_linker_without_an_output_fails_the_build(staged):
    fake = staged.fake

    def start(command, scratch):
        if "-shared" in command:
            fake.writes = False
        return fake(command, scratch)

    staged._start = start
    built = staged.build(_request(PLAIN, None))
    assert not built.path and built.log.startswith("error: ")


@pytest.mark.parametrize("text", ["int a;\0", "// \ud800"])
def test_text_that_no_file_holds_is_not_compiled(staged, text):
    built = staged.build(_request(text))
    assert not built.path and "cpp_sources holds the character" in built.log
    assert staged.fake.commands == [] and not built.may_pass_later


@pytest.mark.parametrize("name", ["/dev/zero", "../../../../dev/zero", "/proc/self/mem"])
def test_hostile_include_is_left_to_the_compiler(staged, name):
    assert staged.build(_request(f'#include "{name}"\n{PLAIN}')).path
    assert any(UNIT in command for command in staged.fake.commands)


def test_others_go_first_while_an_extension_is_compiled_and_not_for_one_that_is_kept(staged):
    seen = []

    @contextlib.contextmanager
    def away():
        before = len(staged.fake.commands)
        yield
        seen.append(len(staged.fake.commands) - before)

    for _ in range(2):
        assert staged.build(_request(PLAIN), away).path
    assert seen == [len(staged.fake.commands)] and seen[0] > 0


def test_two_may_compile_the_binding_unit_at_once(staged):
    tools = compilation.BuildTools(toolchain(find_compiler()), None)
    request = read_request(_request(PLAIN), cuda=False)
    scratch = staged._scratch_root / "build"
    made = compilation.Compilation(request, tools, scratch, staged.fake, staged._cache)
    with made._binding() as one, made._binding() as two:
        assert one.running is not None and two.running is not None
        assert one.finish() == two.finish()
    with made._binding() as there:
        assert there.running is None and there.finish().exists()
    assert list(staged._scratch_root.iterdir()) == []


@pytest.mark.parametrize(
    ("log", "attempts"),
    [
        ("kernel.cpp:1:1: error: expected initializer", 1),
        ("the build took longer than 10 s", 2),
        ("g++: fatal error: Killed signal terminated program cc1plus", 2),
        ("cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes", 2),
        ("virtual memory exhausted: Cannot allocate memory", 2),
        ("fatal error: cannot execute 'cc1plus': vfork: Resource temporarily unavailable", 2),
        ("the compiler exited with 137", 2),
    ],
)
def test_only_what_the_source_is_to_blame_for_is_remembered(staged, log, attempts):
    staged.fake.log = FAILED + log
    first = staged.build(_request(PLAIN, None))
    again = staged.build(_request(PLAIN, None))
    assert first.log == again.log == log
    assert len(staged.fake.commands) == attempts


def test_failures_are_remembered_up_to_a_number(staged, monkeypatch):
    monkeypatch.setattr(builder_module, "_MAX_FAILURES", 3)
    staged.fake.log = FAILED + "error: no"
    sources = [f"int x = {number}" for number in range(5)]
    for source in sources:
        staged.build(_request(source, None))
    remembered = [staged.build(_request(source, None)).cached for source in reversed(sources)]
    assert remembered == [True, True, True, False, False]


def test_libraries_for_another_cpu_are_others(staged, monkeypatch):
    here = staged.build(_request(PLAIN))
    tools = toolchain(find_compiler())
    other = dataclasses.replace(tools, cpu="another")
    monkeypatch.setattr(builder_module, "find_toolchain", lambda compiler: other)
    there = staged.build(_request(PLAIN))
    assert here.path and there.path and there.path != here.path and not there.cached
    objects = list((staged._cache.folder).glob("binding-*.o"))
    assert len(objects) == 2


def test_a_cpu_is_known_by_model_and_features():
    text = "processor\t: 0\nmodel name\t: A\ncpu MHz\t: 1.0\nflags\t: avx\n\nprocessor\t: 1\n"
    assert describe_cpu(text).startswith("A ")
    assert describe_cpu(text.replace("1.0", "2.0")) == describe_cpu(text)
    for old, new in (("name\t: A", "name\t: B"), ("avx", "avx avx2")):
        assert describe_cpu(text.replace(old, new)) != describe_cpu(text)
    arm = "processor\t: 0\nCPU part\t: 0xd0c\nFeatures\t: fp\n"
    assert describe_cpu(arm) != describe_cpu(arm.replace("d0c", "d40"))


# --- when the wrapper around the compiler fails -------------------------------------------------
@pytest.fixture
def builder(tmp_path):
    return Builder(tmp_path, tmp_path, "ns+landlock+seccomp", Limits(), readable_paths())


def test_a_sandbox_that_cannot_be_had_is_no_compile_error(builder, tmp_path):
    with pytest.raises(JudgeError, match="could not be run: sandbox: FileNotFoundError"):
        builder._start(["/usr/bin/no-such-compiler"], tmp_path).finish(BuildLimit(60.0))
    builder._limits = dataclasses.replace(Limits(), processes=None)
    with pytest.raises(JudgeError, match="could not be run: sandbox: TypeError"):
        builder.build(_request(PLAIN))
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_the_status_of_the_program_is_passed_on(builder, tmp_path):
    def status(script):
        return builder._start(["/bin/sh", "-c", script], tmp_path).finish(BuildLimit(60.0))

    assert status("echo fine") == "fine\n"
    assert status("echo oh; exit 3") == FAILED + "oh\n"
    builder._tier = "landlock+seccomp"  # the first process of a namespace cannot kill itself
    assert status("kill -9 $$") == FAILED + "the compiler exited with 137"


@pytest.mark.parametrize("plan", ["{", json.dumps({"tier": "limits"})])
def test_a_plan_that_cannot_be_read_ends_with_the_reserved_status(plan):
    answer = subprocess.run(
        [sys.executable, "-I", "-S", sandbox.__file__, plan, "true"], capture_output=True
    )
    assert answer.returncode == sandbox.OWN_FAILURE and b"sandbox:" in answer.stderr
