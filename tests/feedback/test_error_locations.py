from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.feedback.error_locations import complaints_of, without_noise
from kernelgym.testing import verdict
from support.feedback_cases import CASES, CUDA, STORE_LINE, TRITON
from support.strategies import any_text, python_like, verdicts


@given(verdicts(), python_like() | any_text)
def test_any_log_and_message_can_be_read(found, source) -> None:
    for complaint in complaints_of(found, source):
        assert isinstance(str(complaint), str)
        for number, text in complaint.lines:
            assert number == 0 or text.startswith(source.splitlines()[number - 1].strip()[:600])


@given(st.lists(st.sampled_from(
    ("k.cpp:3:4: error: no\n", "    3 | x\n", "k.cu(3): error: no\n", "  ^\n", "x\n",
     "ptxas fatal   : no\n", "CompilationError: at 3:4:\n", "ValueError('no')\n", "ld: undefined "
     "reference to `f'\n", "(line 3, in f; line 4)", " (line 99999999999, in f)")
), max_size=12).map("".join))  # fmt: skip
def test_pieces_of_compilers_in_any_order_can_be_read(text: str) -> None:
    for status in ("compile_error", "runtime_error"):
        found = verdict(status, message=text, log=text)
        assert complaints_of(found, TRITON.source) or not text.strip()


@pytest.mark.parametrize(
    ("name", "first", "lines"),
    [
        ("compile_gcc", "kernel.cpp:7:22: error: ‘empty_lik’ is not a member", [11]),
        ("compile_nvcc", 'kernel.cu(4): error: identifier "factr" is undefined', [8]),
        ("compile_triton", "Triton CompilationError: module 'triton.language' has", [STORE_LINE]),
        ("compile_syntax", "the module did not load: SyntaxError: unmatched ')'", [3]),
        ("runtime", "IndexError: out-of-bounds store", [24, STORE_LINE]),
        ("runtime_cuda", "AcceleratorError: CUDA error: an illegal memory access was", []),
    ],
)
def test_the_first_error_and_the_candidates_lines(name, first, lines) -> None:
    found, _ = CASES[name]
    source = (CUDA if "cuda" in name or name in ("compile_gcc", "compile_nvcc") else TRITON).source
    complaint = complaints_of(found, source)[0]
    assert complaint.text.startswith(first)
    assert [number for number, _ in complaint.lines] == lines
    for number, text in complaint.lines:
        assert text.startswith(source.splitlines()[number - 1].strip())


def test_a_line_that_occurs_twice_is_quoted_without_a_number() -> None:
    log = "k.cu(4): error: no\n  x = 1;\n  ^\n"
    found = verdict("compile_error", message="m", log=log)
    assert complaints_of(found, "x = 1;\nx = 1;")[0].lines == ((0, "x = 1;"),)


def test_errors_of_the_linker_and_of_ptxas_are_told() -> None:
    log = (
        "kernel.o: in function `run': undefined reference to `launch(float*)'\n"
        "ptxas error   : Entry function 'k' uses too much shared data (0x10000 bytes, 0xc000 max)\n"
        "collect2: error: ld returned 1 exit status\n"
    )
    found = complaints_of(verdict("compile_error", message="m", log=log), "")
    assert ["undefined reference" in found[0].text, "ptxas" in found[1].text] == [True, True]


def test_the_same_error_is_told_once() -> None:
    found = verdict("compile_error", message="m", log="k.cu(4): error: no\n" * 50)
    assert len(complaints_of(found, "")) == 1


def test_noise_is_left_out() -> None:
    text = CASES["runtime_cuda"][0].message
    assert without_noise(text) == text.splitlines()[0]


@pytest.mark.parametrize(
    "text",
    [
        "(line 1" * 20_000, " (line 1, in f" + "; line 1" * 20_000, "a.b." * 50_000 + ":",
        "x(" * 50_000, "k.cpp:1:1: " * 20_000, " " * 200_000 + "^", "\n" * 300_000,
    ],
)  # fmt: skip
def test_long_hostile_text_is_read(text: str) -> None:
    """A pattern that backtracks would take hours over these."""
    for status in ("compile_error", "runtime_error"):
        found = complaints_of(verdict(status, message=text, log=text), text)
        assert len(found) <= 1
