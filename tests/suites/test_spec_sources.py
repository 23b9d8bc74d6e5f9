"""What sources say of themselves."""

from __future__ import annotations

import time

import pytest

from kernelgym.errors import UsageError
from kernelgym.suites import spec_checks
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


@pytest.mark.parametrize(
    "body",
    [
        "desc = tl.make_tensor_descriptor(y, [n], [1], [8])\n    desc.store([0], v)",
        "at: tl.tensor = y + i\n    tl.store(at, v)",
        "for at in pointers(y):\n        tl.store(at, v)",
    ],
)
def test_other_ways_to_write_are_seen(body: str) -> None:
    source = f"@triton.jit\ndef k(x, y, n):\n    v = tl.load(x)\n    {body}\n"
    assert unwritten_by_triton(source, "k", ["x", "y"]) == ["x"]


def test_a_long_table_before_a_function_is_skipped() -> None:
    table = ", ".join(str(number) for number in range(40_000))  # a square of it would take hours
    source = f"static const int table[] = {{{table}}};\nint f(int a) {{ return table[a]; }}"
    assert cpp_function(source, "f") == ("int", ("int a",))


@pytest.mark.parametrize(
    "before",
    ["/*" * 100_000, '"\\"' * 100_000, "'" * 100_000, "f(" * 100_000, "f" + " " * 100_000],
)
def test_unclosed_text_takes_linear_time(before: str) -> None:
    began = time.process_time()
    with pytest.raises(UsageError, match="defines no function"):
        cpp_function(f"{before}\nint g;", "f")
    assert time.process_time() - began < 2.0


def test_a_character_begins_no_string() -> None:
    source = """char quote = '"'; int f(int a) { return a; } char other = '"';"""
    assert cpp_function(source, "f") == ("int", ("int a",))


def test_many_consts_take_linear_time() -> None:
    began = time.process_time()
    assert not spec_checks._is_constant_pointer("const " * 50_000)
    assert time.process_time() - began < 1.0
    assert spec_checks._is_constant_pointer("const float* x")
    assert not spec_checks._is_constant_pointer("float* const_x")
