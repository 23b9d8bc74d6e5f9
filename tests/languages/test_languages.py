from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable
from types import MappingProxyType

import pytest

import kernelgym.languages as room
from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge.compiling import requirements
from kernelgym.languages import (
    LANGUAGES,
    REFERENCE_LANGUAGE,
    Tool,
    check_language,
    is_interpreted,
    noun_of,
)
from kernelgym.languages import triton as triton_file


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def change(name: str, **fields: object) -> None:
        entry = dataclasses.replace(LANGUAGES[name], **fields)  # type: ignore[arg-type]
        monkeypatch.setattr(room, "LANGUAGES", MappingProxyType({**LANGUAGES, name: entry}))

    return change


@pytest.mark.parametrize("name", LANGUAGES)
def test_entries_are_complete(name: str) -> None:
    entry = LANGUAGES[name]
    assert entry.name == name and entry.title and entry.noun and entry.task and entry.precisions
    for kinds in (entry.timed_on, entry.interpreted_on, entry.assembled_on):
        assert set(kinds) <= set(entry.devices)
    assert bool(entry.interpreted_on) == bool(entry.interpreter_note)
    for source in (entry.sample, *(example.kernel for example in entry.examples)):
        ast.parse(source)
    assert entry.sample.count("+ 1.0") == 1


@pytest.mark.parametrize("name", LANGUAGES)
def test_own_kernel_is_decorated_or_built(name: str) -> None:
    own = LANGUAGES[name].own_kernel
    assert bool(own.decorator) != bool(own.builders)
    assert bool(own.device_code) == bool(own.device_marker)
    if own.device_code:
        assert re.search(own.device_code, own.device_marker)


def test_interpreter_runs_triton_on_the_cpu_only() -> None:
    assert is_interpreted("triton", "cpu") and not is_interpreted("triton", "cuda:1")
    assert not is_interpreted("cpp", "cpu") and not is_interpreted(REFERENCE_LANGUAGE, "cpu")


def test_assembler_is_for_triton_and_gluon_on_gpus_only() -> None:
    assembled = [name for name, entry in LANGUAGES.items() if entry.is_assembled("cuda:1")]
    assert assembled == ["triton", "gluon"]
    assert not any(entry.is_assembled("cpu") for entry in LANGUAGES.values())


def test_nouns_name_the_language() -> None:
    nouns = {name: noun_of(name) for name in (*LANGUAGES, REFERENCE_LANGUAGE)}
    assert nouns == {
        "triton": "Triton kernel",
        "cpp": "C++ extension function",
        "cuda": "custom CUDA kernel",
        "hip": "custom HIP kernel",
        "cute": "CuTe DSL kernel",
        "gluon": "Gluon kernel",
        "tilelang": "TileLang kernel",
        "thunderkittens": "ThunderKittens kernel",
        "torch": "custom TORCH kernel",
    }


def test_precision_it_lacks_is_refused(table: Callable[..., None]) -> None:
    table("cpp", precisions=("fp32",))
    assert check_language("cpp", "cpu", "fp32").name == "cpp"
    with pytest.raises(UnsupportedLanguage, match=r"'cpp' does not compute in fp16 .*in: fp32"):
        check_language("cpp", "cpu", "fp16")


def test_missing_compiler_is_told_before_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UnsupportedLanguage, match="no C"):
        requirements.check_requirements(LANGUAGES["cpp"])
    requirements.check_requirements(LANGUAGES["triton"])


def test_nvcc_is_needed_by_load_inline_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setitem(requirements._FINDERS, "nvcc", lambda: asked.append("nvcc") or "")
    requirements.check_requirements(LANGUAGES["cuda"])
    requirements.check_requirements(LANGUAGES["cuda"], "cupy.RawKernel(source, 'f')")
    assert not asked
    requirements.check_requirements(LANGUAGES["cuda"], LANGUAGES["cuda"].sample)
    assert asked == ["nvcc"]


def test_tools_are_ones_that_can_be_found() -> None:
    tools = {tool for entry in LANGUAGES.values() for tool in entry.tools}
    expected = {Tool("c++"), Tool("nvcc"), Tool("nvcc", "load_inline"), Tool("hip clang")}
    assert tools == expected
    assert {tool.name for tool in tools} <= requirements._FINDERS.keys()


@pytest.mark.parametrize(
    ("triton", "numpy", "breaks"),
    [
        ("3.6.0", "2.4.1", True),
        ("3.7.0", "2.4.1", False),
        ("3.6.0", "2.3.9", False),
        ("odd", "2.4.1", False),
    ],
)
def test_interpreter_trouble_depends_on_versions(
    monkeypatch: pytest.MonkeyPatch, triton: str, numpy: str, breaks: bool
) -> None:
    found = {"triton": triton, "numpy": numpy}
    monkeypatch.setattr(triton_file, "version", found.__getitem__)
    assert LANGUAGES["triton"].find_trouble is not None
    trouble = LANGUAGES["triton"].find_trouble()
    assert ("install triton>=3.7 or numpy<2.4" in trouble) == breaks == bool(trouble)
