"""Launchers are built once for every source, in a sandbox, and reach the process that asked."""

import importlib.util
import os
import subprocess
import sys

import pytest

from kernelgym.judge import hooks
from kernelgym.judge.build import Builder
from kernelgym.judge.fork_server import readable_paths
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
    first = builder.build({"launcher": source(7)})
    assert first.path and not first.cached and answer_of(first.path) == 7
    again = builder.build({"launcher": source(7)})
    assert again.cached and again.path == first.path
    assert answer_of(builder.build({"launcher": source(8)}).path) == 8
    assert os.listdir(tmp_path / "scratch") == []


def test_what_does_not_compile_is_told_and_not_kept(builder):
    for _ in range(2):
        built = builder.build({"launcher": "int main( {"})
        assert not built.path and not built.cached and "error" in built.log


def test_it_may_not_read_what_candidates_may_not(builder, tmp_path):
    secret = tmp_path / "secret.h"
    secret.write_text("#define NUMBER 9\n")
    confined = Builder(
        tmp_path / "cache", tmp_path / "scratch", "landlock+seccomp", Limits(), readable_paths()
    )
    included = f'#include "{secret}"\n{MODULE}'
    assert builder.build({"launcher": included}).path  # without walls it can
    built = confined.build({"launcher": included + "\n"})
    assert not built.path and "secret.h" in built.log


HOOKED = """
import os
import sys
from kernelgym.judge import hooks
from triton.runtime.build import compile_module_from_src
library, source = sys.argv[1:]
asked = []

def request(what):
    asked.append(what)
    return {"module": "l", "fds": [os.open(library, os.O_RDONLY)]} if library else {}

hooks.replace_launcher_builds(request)
for _ in range(2):
    module = compile_module_from_src(open(source).read(), "__triton_launcher")
    assert module.answer() == 7
assert [list(each) for each in asked] == [["launcher"]]
assert asked[0]["launcher"] == open(source).read()
"""


@pytest.mark.parametrize("answered", [True, False], ids=["built there", "built here"])
def test_triton_takes_what_was_built_elsewhere_or_builds_itself(builder, tmp_path, answered):
    text = tmp_path / "launcher.c"
    text.write_text(source(7))
    library = builder.build({"launcher": source(7)}).path if answered else ""
    done = subprocess.run(
        [sys.executable, "-c", HOOKED, library, str(text)],
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_triton_can_be_warmed_without_a_device():
    hooks._compile_something(90)
