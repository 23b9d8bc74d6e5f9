"""`KernelFile`: only the C++ text and the flags of a module change."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym import UsageError
from kernelgym.languages import LANGUAGES
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.kernel_file import read_kernel_file

MATMUL = EXAMPLES["matmul"][1].source
INLINE = "import x\next = x.load_inline(name='é', cpp_sources=['int a;'], functions=['f'])  # é\n"


def test_half_a_character_is_refused() -> None:
    half = MATMUL.replace("<torch/extension.h>", "<\\ud800.h>")
    with pytest.raises(UsageError, match="half of a character"):
        read_kernel_file(half)


def test_kernel_file_unchanged_keeps_the_text() -> None:
    file = read_kernel_file(MATMUL)
    assert file.with_flags(file.flags).with_cpp(file.cpp).source == MATMUL
    assert file.flags == ("-O2",) and "matrix_product" in file.cpp


@settings(max_examples=30)
@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_kernel_file_any_cpp_text_is_read_back(text: str) -> None:
    assert read_kernel_file(MATMUL).with_cpp(text).cpp == text
    assert read_kernel_file(INLINE).with_cpp(text).cpp == text


@pytest.mark.parametrize(
    "source",
    [MATMUL, INLINE, *(INLINE.replace("['f'])", f"['f']{end})") for end in (",", ",  # last\n"))],
)
def test_kernel_file_flags_are_added(source: str) -> None:
    file = read_kernel_file(source).with_flags(("-O3", "-fopenmp"))
    assert file.flags == ("-O3", "-fopenmp") and file.link_flags == ("-fopenmp",)
    assert file.cpp == read_kernel_file(source).cpp
    ast.parse(file.source)


@pytest.mark.parametrize("source", [LANGUAGES["cpp"].sample, LANGUAGES["cpp"].examples[0].kernel])
def test_kernel_file_shown_kernel_is_understood(source: str) -> None:
    assert "torch/extension.h" in read_kernel_file(source).cpp


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("class ModelNew: ...", "calls load_inline once, this one 0 times"),
        ("def (", "not a Python module"),
        ("load_inline(cpp_sources=a + b)", "one string literal"),
        ("a = 'x'\na = 'y'\nload_inline(cpp_sources=a)", "one string literal"),
        ("load_inline(cpp_sources='', extra_cflags=flags())", "list of string literals"),
    ],
)
def test_kernel_file_unknown_form_is_refused(source: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        read_kernel_file(source)


def test_cuda_text_and_its_flags_are_those_of_the_device() -> None:
    source = (
        "declaration = 'void f();'\n"
        "load_inline(cpp_sources=declaration, cuda_sources='void f() {}', functions=['f'],\n"
        "            extra_cflags=['-O2'], extra_cuda_cflags=['-lineinfo'])\n"
    )
    file = read_kernel_file(source)
    assert (file.cpp, file.flags, file.functions) == ("void f() {}", ("-lineinfo",), ())
    changed = file.with_cpp("void f() { }").with_flags(("-maxrregcount=64",))
    assert "declaration = 'void f();'" in changed.source
    assert "extra_cflags=['-O2']" in changed.source
    again = read_kernel_file(changed.source)
    assert (again.cpp, again.flags) == ("void f() { }", ("-maxrregcount=64",))
