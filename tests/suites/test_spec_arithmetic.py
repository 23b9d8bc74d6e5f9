"""Arithmetic in kernel specs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.suites.spec_arithmetic import (
    CPP_FUNCTIONS,
    FUNCTIONS,
    as_cpp,
    as_python,
    evaluate,
    names_in,
)

VALUES = {"rows": 7, "BLOCK": 64, "n": 1000}


def expressions() -> st.SearchStrategy[str]:
    leaves = st.sampled_from(list(VALUES)) | st.integers(0, 99).map(str)

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        two = st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner)
        calls = st.tuples(st.sampled_from(["ceil_div", "cdiv", "min", "max"]), inner, inner)
        return st.one_of(
            two.map(lambda parts: f"({' '.join(parts)})"),
            calls.map(lambda parts: f"{parts[0]}({parts[1]}, {parts[2]})"),
            inner.map(lambda each: f"next_power_of_2({each})"),
            inner.map(lambda each: f"-{each}"),
        )

    return st.recursive(leaves, grown, max_leaves=8)


_EXPRESSIONS = (
    *("ceil_div(rows, n)", "-rows // n", "-n % rows", "rows % -n", "min(rows, n, 3) * 2 - 9"),
    *("next_power_of_2(rows + n)", "max(-rows, -n)", "cdiv(-rows, 4)", "next_power_of_2(-2)"),
)


@given(expressions())
def test_rendered_python_gives_the_same_value(expression: str) -> None:
    try:
        expected = evaluate(expression, VALUES)
    except UsageError:  # divides by zero, or is too large
        return
    assert eval(as_python(expression), {}, dict(VALUES)) == expected
    assert set(names_in(expression)) <= set(VALUES)


def test_rendered_cpp_gives_the_same_values(tmp_path: Path) -> None:
    known = [
        *_EXPRESSIONS,
        *(f"({a}) // ({b}) + ({b}) % 5" for a in _EXPRESSIONS for b in ("n", "-3")),
    ]
    values = "".join(f"const int64_t its_{name} = {value};\n" for name, value in VALUES.items())
    names = {name: f"its_{name}" for name in VALUES}
    lines = [f'  printf("%lld\\n", (long long)({as_cpp(each, names)}));' for each in known]
    source = tmp_path / "values.cpp"
    includes = "#include <algorithm>\n#include <cstdint>\n#include <cstdio>\n"
    main = "\n".join(["int main() {", *lines, "}"])
    source.write_text(f"{includes}{CPP_FUNCTIONS}{values}{main}", encoding="utf-8")
    program = str(tmp_path / "values")
    subprocess.run(["g++", "-O0", "-w", str(source), "-o", program], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert [int(line) for line in printed.split()] == [evaluate(each, VALUES) for each in known]


@pytest.mark.parametrize(
    "text",
    [
        *("rows.bit_length()", "__import__('os')", "[1][0]", "rows if n else 1", "1.5", "True"),
        *("rows ** 9", "min", "min(1)", "f(1)", "lambda: 1", "", "1 +", "min(*n)", "a == b"),
    ],
)
def test_what_is_no_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="arithmetic"):
        names_in(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n // (rows - 7)", "divides by zero"),
        ("n * width", "width.*not defined"),
        ("9000000000000000000 * n", "64 bits"),
    ],
)
def test_what_has_no_value_says_why(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        evaluate(text, VALUES)


def test_functions_round_as_named() -> None:
    assert evaluate("ceil_div(n, BLOCK)", VALUES) == 16
    assert evaluate("next_power_of_2(n)", VALUES) == 1024
    assert evaluate(5, {}) == 5 and "ceil_div" in FUNCTIONS
