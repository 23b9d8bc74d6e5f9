"""What sources say of themselves."""

from __future__ import annotations

import pytest

from kernelgym.suites.spec_sources import cpp_function, declaration, is_jit, unwritten_by_triton
from support.specs import CPP, TRITON


def test_the_signature_of_a_function_is_found() -> None:
    kind, parameters = cpp_function(CPP, "scaled")
    assert (kind, parameters) == ("torch::Tensor", ("torch::Tensor x_in", "double factor"))


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("// void f(int a) {\nint f(int a) { return g(a); }", "int"),
        ('const char* s = "void f(int a) {";\nstatic int f(int a) {}', "int"),
        (
            "#define f(x) {\nstd::vector<int> f(std::map<int, int> a, int b = 3) {}",
            "std::vector<int>",
        ),
        ("int f(int a);\nvoid f(int a, float* b)\n{\n}", "void"),
    ],
)
def test_comments_and_declarations_are_no_function(source: str, kind: str) -> None:
    assert cpp_function(source, "f")[0] == kind


def test_a_declaration_has_no_defaults() -> None:
    source = "int f(std::map<int, int> a, int b = 3) {}"
    assert declaration(source, "f") == "int f(std::map<int, int> a, int b);"


def test_triton_writes_through_what_reaches_a_store() -> None:
    assert is_jit(TRITON, "scale_kernel")
    assert unwritten_by_triton(TRITON, "scale_kernel", ["x", "y"]) == ["x"]


def test_a_pointer_handed_on_counts_as_written() -> None:
    source = TRITON.replace("tl.store(at, ", "keep(x, at, ")
    assert unwritten_by_triton(source, "scale_kernel", ["x", "y"]) == []
