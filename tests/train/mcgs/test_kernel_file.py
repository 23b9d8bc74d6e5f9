"""`KernelFile`: only the C++ text and the flags of a module change."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym import UsageError
from kernelgym.languages import LANGUAGES
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.kernel_file import added_argument, read_kernel_file

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


@given(
    st.lists(
        st.sampled_from(["a", "b=1", '"a # b"', "f(x, y,)", "[1, 2]", "é"]), max_size=3, unique=True
    ),
    st.sampled_from(["", ","]),
    st.sampled_from(["", "\n", "  # no, comment\n", " \\\n", "\n\n# é)\n"]),
)
def test_arguments_are_added_after_all_others(args: list[str], comma: str, space: str) -> None:
    args.sort(key=lambda each: "=" in each)
    call = f"call({', '.join(args)}{comma if args else ''}{space})"
    source = f"é = 1\n{call}  # )\n"
    start = len("é = 1\n".encode())
    place = start, start + len(call.encode())
    data = source.encode()
    for name in ("two", "one"):  # the later one is inserted before the earlier one
        (at, _), text = added_argument(source, place, f"{name}=0")
        data = data[:at] + text.encode() + data[at:]
    (_, statement) = ast.parse(data.decode()).body
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    found = [ast.unparse(each) for each in (*statement.value.args, *statement.value.keywords)]
    wanted = [ast.unparse(ast.parse(f"call({each})").body[0])[5:-1] for each in args]
    assert found == [*wanted, "one=0", "two=0"]
