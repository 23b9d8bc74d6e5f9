"""Complaints of nvcc about headers are told by the kernel's line, with the language's advice."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.compiling.complaints import explained
from kernelgym.languages import LANGUAGES, Advice

ADVICE = LANGUAGES["thunderkittens"].advice
SOURCE = """#include "kittens.cuh"
using namespace kittens;
__global__ void f() {
  rt_fl<15, 64> tile;
}
"""
IN_A_HEADER = """\
/opt/TK/include/types/register/rt.cuh(91): error: static assertion failed with "Rows must be \
divisible by the tile size"
      static_assert(rows % rt_base<T, layout>::tile_size_row == 0, "Rows must be divisible");
      ^
          detected during instantiation of class "kittens::rt<_T, _rows, _cols, _layout> [with \
_T=float, _rows=15, _cols=64]" at line 4 of kernel.cu

1 error detected in the compilation of "unit.cu".
"""


def test_complaint_about_a_header_is_told_by_the_kernel_s_line() -> None:
    told = explained(IN_A_HEADER, {"cuda_sources": [SOURCE]}).splitlines()
    assert told[0].startswith("kernel.cu(4): error: static assertion failed with")
    assert told[1] == "    rt_fl<15, 64> tile;"
    assert "\n".join(told[2:]) == IN_A_HEADER.rstrip()


def test_complaint_in_a_second_source_quotes_that_source() -> None:
    log = IN_A_HEADER.replace("kernel.cu", "kernel_2.cu")
    told = explained(log, {"cuda_sources": ["", SOURCE]}).splitlines()
    assert told[0].startswith("kernel_2.cu(4): error:") and told[1] == "    rt_fl<15, 64> tile;"


def test_complaint_about_the_kernel_s_own_line_is_left_as_it_is() -> None:
    log = 'kernel.cu(4): error: identifier "lode" is undefined\n    lode(x);\n'
    assert explained(log, {"cuda_sources": [SOURCE]}) == log


@pytest.mark.parametrize("request_", [None, {}, {"cuda_sources": [1]}, {"cuda_sources": "text"}])
def test_request_without_the_line_is_told_without_a_quote(request_: object) -> None:
    told = explained(IN_A_HEADER, request_).splitlines()
    assert told[0].startswith("kernel.cu(4): error:") and told[1].startswith("/opt/TK")


@pytest.mark.parametrize(
    ("complaint", "advice"),
    [
        (
            "kernel.cu:4:10: fatal error: kittens.cuh: No such file or directory",
            "extra_include_paths",
        ),
        (IN_A_HEADER, "multiples of 16"),
        ('kernel.cu(9): error: identifier "semaphore" is undefined', "-DKITTENS_HOPPER"),
        ('kernel.cu(9): error: identifier "load" is undefined', "warp::load"),
        ('kernel.cu(9): error: identifier "row_max" is undefined', "warp::load"),
        (
            "ptxas unit.ptx, line 9; error : Instruction 'wgmma.fence' cannot be compiled for "
            "architecture 'sm_90'",
            "-gencode=arch=compute_90a,code=sm_90a",
        ),
        (
            '/TK/include/types/global/gl.cuh(72): error: static assertion failed with "SKILL ISSUE:'
            ' Requested a TMA descriptor for a type not initialized in the global layout."',
            "last parameters of gl",
        ),
    ],
)
def test_usual_mistake_gets_the_language_s_advice(complaint: str, advice: str) -> None:
    told = explained(complaint, {}, ADVICE)
    first = re.findall(r"^advice: (.*)", told, re.MULTILINE)
    assert len(first) == 1 and advice in first[0] and told.endswith(complaint)


@given(st.text(), st.integers(), st.lists(st.text()))
def test_any_log_is_kept_whole_behind_what_is_told(log: str, number: int, texts: list[str]) -> None:
    log = f"{log}\n{IN_A_HEADER.replace('line 4', f'line {number}')}"
    told = explained(log, {"cuda_sources": texts}, (Advice("tile", "mind tiles"),))
    assert told.endswith(log) and "advice: mind tiles" in told
