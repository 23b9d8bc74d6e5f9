"""`normal_cpp`: comments and layout go, everything that a compiler reads stays."""

from __future__ import annotations

import pytest

from kernelgym_train.mcgs.cpp.normal import normal_cpp


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int a=1;  // one\n", "int a = 1;"),
        ("x /* y */ + z", "x + z"),
        ("#pragma  omp   simd\nfor(;;){}", "  #pragma omp simd // lanes\nfor (;;) { }"),
        ("#define A \\\n 1\nint a;", "#define A 1\nint a;"),
        ("f(a,b)", "f( a,\n b )"),
    ],
)
def test_normal_cpp_other_layout_is_equal(one: str, other: str) -> None:
    assert normal_cpp(one) == normal_cpp(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a+++b", "a+ ++b"),
        ('"// a"', '"// b"'),
        ('"a  b"', '"a b"'),
        ("1 .5", "1.5"),
        ("int ab;", "int a b;"),
        ("'\"' /* a */ + b", "'\"' + c"),
        ('R"(a // b)"', 'R"(a // c)"'),
        ("#define A\nB", "#define A B"),
        ("a >> b", "a > > b"),
    ],
)
def test_normal_cpp_other_program_differs(one: str, other: str) -> None:
    assert normal_cpp(one) != normal_cpp(other)
