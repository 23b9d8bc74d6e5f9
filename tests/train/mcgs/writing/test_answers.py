"""Answers: what is read from them, and why they are refused."""

from __future__ import annotations

import contextlib
import dataclasses
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import UsageError
from kernelgym.testing import SAMPLE_KERNELS
from kernelgym.types import Kernel
from kernelgym_train.mcgs.kernel_file import read_kernel_file
from kernelgym_train.mcgs.moves.written_knobs import WRITTEN_KNOB
from kernelgym_train.mcgs.source_forms import is_read
from kernelgym_train.mcgs.variant import read_variant
from kernelgym_train.mcgs.writing.answers import FILE, AnswerRefused, read_answer
from support import searches
from support.writers import flag_line, replace

START = searches.TASK.start
LINE = flag_line(START.source)
FASTER = replace(LINE, LINE.replace("-O2", "-O3"))


def refused(text: str, **given: object) -> str:
    with pytest.raises(AnswerRefused) as caught:
        read_answer(text, START, **given)  # type: ignore[arg-type]
    assert str(caught.value)
    return caught.value.kind


def whole(source: str) -> str:
    return f"<KERNEL>\n```python\n{source}\n```\n</KERNEL>"


def test_patch_and_its_header_are_read() -> None:
    text = FASTER.replace("GAIN:", "**MOVE:** `hoist`\nGAIN:")
    found = read_answer(text, START, moves=["hoist"])
    assert found.form == "patch" and found.variant.flags == ("-O3",)
    assert (found.move, found.predicted_gain, found.summary) == ("hoist", 0.5, "other flags")


def test_whole_module_is_the_fallback() -> None:
    found = read_answer(whole(START.source.replace("-O2", "-O3")), START)
    assert found.form == "whole" and found.predicted_gain is None and not found.summary


@pytest.mark.parametrize(
    ("told", "gain"),
    [
        ("0.25", 0.25),
        ("25 %", 0.25),
        ("1.25x", 0.25),
        ("about 0.1, I think", 0.1),
        ("much", None),
        ("", None),
        ("-3", None),
        ("9e9 %", None),
    ],
)
def test_gain_is_a_share(told: str, gain: float | None) -> None:
    text = FASTER.replace("GAIN: 0.5", f"GAIN: {told}")
    found = read_answer(text, START).predicted_gain
    assert found == (None if gain is None else pytest.approx(gain))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "no_answer"),
        ("I would use tiles.", "no_answer"),
        (replace("nowhere", "x"), "not_found"),
        (whole(START.source), "no_change"),
        (whole(f"# a comment\n{START.source}"), "no_change"),
        (FASTER.replace('"-O3"', '"-O3", "-ffast-math"'), "approximate"),
        (FASTER.replace("-O3", "-Ofast"), "approximate"),
        (replace("import torch.nn as nn", "import torch.nn as nn ("), "unreadable"),
        (FASTER.replace("GAIN:", "MOVE: magic\nGAIN:"), "unknown_move"),
    ],
)
def test_answer_that_gives_no_kernel_is_refused(text: str, kind: str) -> None:
    assert refused(text, moves=["hoist"]) == kind


def test_answer_at_its_limit_of_tokens_is_refused() -> None:
    assert refused(FASTER, cut_off=True) == "cut_off"


def test_approximate_flags_need_leave() -> None:
    text = FASTER.replace('"-O3"', '"-O3", "-ffast-math"')
    assert "-ffast-math" in read_answer(text, START, approximate=True).variant.flags


@pytest.mark.parametrize("start", [START, SAMPLE_KERNELS["triton"]])
@pytest.mark.parametrize("deep", ["not " * 50_000, "-" * 50_000, "0 or " * 50_000, "-" * 300])
def test_module_nested_too_deeply_ends_no_search(start: Kernel, deep: str) -> None:
    with contextlib.suppress(AnswerRefused, UsageError):
        read_variant(read_answer(whole(f"{start.source}\nx = {deep}1\n"), start).variant.kernel())


def test_triton_module_too_large_to_read_is_a_text() -> None:
    kernel = SAMPLE_KERNELS["triton"]
    source = kernel.source + "x = 1\n" * 20_000
    with pytest.raises(UsageError, match="larger than 100,000 bytes"):
        read_variant(Kernel(source, "triton"))
    assert not is_read("triton", source)
    assert read_variant(Kernel(source, "triton"), any_form=True).source == source


@pytest.mark.parametrize("text", ["([{<" * 20_000, "void f() { for (;;) g(); }\n" * 2_000])
def test_cpp_too_large_to_read_is_a_text(text: str) -> None:
    source = read_kernel_file(START.source).with_cpp(text).source
    with pytest.raises(UsageError, match="syntax nodes"):
        read_variant(Kernel(source, "cpp"))
    assert not is_read("cpp", source)
    assert read_variant(Kernel(source, "cpp"), any_form=True).source == source


@pytest.mark.parametrize("text", ["f(" * 1000 + ")" * 1000, "{" * 1000 + "}" * 1000, "1" * 5000])
def test_cpp_that_rules_cannot_read_is_a_text(text: str) -> None:
    source = read_kernel_file(START.source).with_cpp("").source
    source = source.replace('""""""', f'"""void f() {{ {text}; }}"""')
    assert text in source
    with pytest.raises(UsageError):
        read_variant(Kernel(source, "cpp"))
    assert not is_read("cpp", source)


@pytest.mark.parametrize(
    "text",
    [
        f"SUMMARY: {' ' * 200_000}x",
        "old mode\n" * 100_000,
        f"--- a/{FILE}\n+++ b/{FILE}\n@@ -{'1' * 5000} +1 @@\n-a\n+b",
    ],
)
def test_long_answer_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    refused(text)
    assert time.process_time() - began < 10.0


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read_answer(text, START)
    except AnswerRefused:
        return
    assert found.variant.source != START.source


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_patch_is_read_or_refused(old: str, new: str) -> None:
    try:
        found = read_answer(replace(old, new), START)
    except AnswerRefused:
        return
    assert found.variant.source != START.source


KNOBS = """
import torch
BLOCK = 128  # knob: 64, 128, 256
WARPS: int = 4  # knob: 2,4
SAME = 1  # knob: 1, 2
SAME = 1  # knob: 1, 2
OTHER = 3  # knob: many
#define TILE 8  // knob: 8, -1
  constexpr int DEEP = 2;  // knob: 2, 3
"""


def test_listed_values_of_constants_are_knobs() -> None:
    plain = read_variant(SAMPLE_KERNELS["triton"])
    variant = dataclasses.replace(plain, source=KNOBS)
    found = [(each.target, each.choice) for each in WRITTEN_KNOB.realise(variant)]
    assert found == [
        ("BLOCK", "64"),
        ("BLOCK", "256"),
        ("WARPS", "2"),
        ("TILE", "-1"),
        ("DEEP", "3"),
    ]
    made = next(iter(WRITTEN_KNOB.realise(variant))).variant.source
    assert made == KNOBS.replace("BLOCK = 128", "BLOCK = 64")


def test_long_line_is_searched_for_knobs_in_little_time() -> None:
    plain = read_variant(SAMPLE_KERNELS["triton"])
    line = f"a{'1' * 2000}{' ' * 2000}1{' ' * 2000}x\n"
    texts = (line, f"B = {'1' * 5000}  # knob: 1\n", f"B = 1  # knob: 1, {'1' * 5000}\n")
    began = time.process_time()
    assert not [
        each
        for text in texts
        for each in WRITTEN_KNOB.realise(dataclasses.replace(plain, source=text))
    ]
    assert time.process_time() - began < 10.0


def test_only_the_first_knobs_of_many_are_read() -> None:
    plain = read_variant(SAMPLE_KERNELS["triton"])
    source = "".join(f"K{number} = 1  # knob: 1, 2\n" for number in range(500))
    assert len([*WRITTEN_KNOB.realise(dataclasses.replace(plain, source=source))]) == 64


def test_parent_in_any_language_is_patched() -> None:
    parent = Kernel("x = 1\nclass ModelNew: pass\n", "hip")
    assert read_answer(replace("x = 1", "x = 2"), parent).variant.source.startswith("x = 2")
