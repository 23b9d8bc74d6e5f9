from __future__ import annotations

import pytest
from hypothesis import given

from kernelgym.answers.parsing import DEFECTS, parse
from kernelgym.testing import SAMPLE_KERNELS, reply
from kernelgym.types import Reply
from support.strategies import texts

GOOD = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + 1
"""
OTHER = GOOD.replace("x + 1", "x + 2")
BROKEN = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    x = (\n"


def tagged(source: str) -> str:
    return f"<KERNEL>\n```python\n{source}```\n</KERNEL>"


def fenced(source: str, tag: str = "python") -> str:
    return f"```{tag}\n{source}```\n"


def source_of(text: str) -> str | None:
    kernel = parse(text, "triton").kernel
    return None if kernel is None else kernel.source


@given(texts)
def test_any_text_gives_a_reply_with_known_defects(text: str) -> None:
    reply_ = parse(text, "cpp")
    assert isinstance(reply_, Reply)
    assert set(reply_.defects) <= set(DEFECTS)
    assert reply_.kernel is not None or reply_.defects
    assert reply_.kernel is None or "class" in reply_.kernel.source


@pytest.mark.parametrize("language", sorted(SAMPLE_KERNELS))
def test_a_clean_answer_round_trips(language: str) -> None:
    kernel = SAMPLE_KERNELS[language]
    assert parse(reply(kernel, "why"), language) == Reply(kernel, "why", ())


@pytest.mark.parametrize(
    ("text", "defects"),
    [
        (tagged(GOOD), ()),
        (f"<KERNEL>\n{GOOD}</KERNEL>", ()),
        (f"<KERNEL>```python\n{GOOD}</KERNEL>", ()),
        (f"```python\n<KERNEL>\n{GOOD}</KERNEL>\n```", ()),
        (tagged(GOOD).replace("\n", "\r\n"), ()),
        (f"I answer in <KERNEL> tags.\n{tagged(GOOD)}", ()),
        (fenced(GOOD), ("no_kernel_tag",)),
        (fenced(GOOD, ""), ("no_kernel_tag",)),
        (fenced(GOOD).replace("```", "~~~~"), ("no_kernel_tag",)),
        ("".join(f"  {line}\n" for line in fenced(GOOD).splitlines()), ("no_kernel_tag",)),
        (fenced("x = 1\n") + fenced(GOOD) + fenced("y = 2\n"), ("no_kernel_tag",)),
        (f"Here:\n```python\n{GOOD}", ("no_kernel_tag", "unclosed_fence")),
        (f"<KERNEL>\n```python\n{GOOD}```", ("unclosed_kernel",)),
        (f"<KERNEL>\n{GOOD}", ("unclosed_kernel",)),
        (f"Sure.\n\n{GOOD}", ("no_kernel_tag",)),
        (GOOD, ("no_kernel_tag",)),
    ],
)
def test_forms_of_an_answer(text: str, defects: tuple[str, ...]) -> None:
    assert source_of(text) == GOOD
    assert parse(text, "triton").defects == defects


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (tagged(OTHER) + tagged(GOOD), GOOD),
        (tagged(GOOD) + tagged(BROKEN), GOOD),
        (tagged(BROKEN) + tagged(GOOD), GOOD),
        (fenced(OTHER) + fenced(GOOD), GOOD),
        (fenced(GOOD) + fenced(BROKEN), GOOD),
        (tagged(GOOD) + fenced(OTHER), GOOD),
        (fenced(OTHER) + tagged(GOOD), GOOD),
        (f"<KERNEL>\n{fenced('int f();' + chr(10), 'cpp')}{fenced(GOOD)}</KERNEL>", GOOD),
        (f"<KERNEL>\nint f();\n</KERNEL>\n{fenced(GOOD)}", GOOD),
    ],
)
def test_the_last_well_formed_answer_wins(text: str, expected: str) -> None:
    assert source_of(text) == expected


def test_several_different_answers_are_a_defect_and_repeats_are_not() -> None:
    assert parse(tagged(OTHER) + tagged(GOOD), "triton").defects == ("several_answers",)
    assert parse(tagged(GOOD) + tagged(GOOD), "triton").defects == ()


def test_a_syntax_error_is_still_an_answer() -> None:
    assert source_of(tagged(BROKEN)) == BROKEN


@pytest.mark.parametrize(
    ("text", "thought", "defects"),
    [
        (f"<think>a</think>{tagged(GOOD)}", "a", ()),
        (f"<THINKING>a</THINKING><think>b</think>{tagged(GOOD)}", "a\nb", ()),
        (f"<think>{tagged(OTHER)}</think>{tagged(GOOD)}", tagged(OTHER), ()),
        (f"<think>use <think> tags</think>{tagged(GOOD)}", "use <think> tags", ()),
        # A chat template opened the block in the prompt.
        (f"so: {tagged(OTHER)}</think>{tagged(GOOD)}", f"so: {tagged(OTHER)}", ()),
        (f"<think>a</think></think>{tagged(GOOD)}", "a", ()),
        (f"{tagged(GOOD)}<think>and", "and", ("unclosed_think",)),
    ],
)
def test_thinking_is_kept_apart(text: str, thought: str, defects: tuple[str, ...]) -> None:
    reply_ = parse(text, "triton")
    assert (source_of(text), reply_.thought, reply_.defects) == (GOOD, thought, defects)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "no_answer"),
        ("I cannot do this.", "no_answer"),
        (f"<think>{fenced(GOOD)}", "unclosed_think"),
        (tagged("def f(): ...\n"), "no_model_new"),
        (fenced("def f(): ...\n"), "no_model_new"),
        ("the class ModelNew is hard to write", "no_answer"),
        (fenced("class ModelNewer: ...\n"), "no_model_new"),
    ],
)
def test_no_answer(text: str, code: str) -> None:
    reply_ = parse(text, "triton")
    assert reply_.kernel is None
    assert code in reply_.defects


STUB = GOOD.replace("return x + 1", "...")
FRAGMENT = "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return helper(x)\n"


@pytest.mark.parametrize(
    ("text", "defects"),
    [
        (fenced(GOOD) + fenced(STUB), ("no_kernel_tag",)),
        (tagged(GOOD) + tagged(STUB), ()),
        (fenced(GOOD) + tagged(STUB), ()),
        (fenced(GOOD) + fenced(FRAGMENT), ("no_kernel_tag", "several_answers")),
        (f"{tagged(GOOD)}\n# What became of turn 1\n{tagged(OTHER)}", ("invented_turn",)),
        (f"{tagged(BROKEN)}\nFeedback: {tagged(GOOD)}", ("invented_turn",)),
        (f"{tagged(GOOD)}<|im_end|>", ()),
        (f"<think>\nso:\n{tagged(GOOD)}", ("unclosed_think",)),
        (f"No <think> is needed.\n{tagged(GOOD)}", ()),
        (f"{GOOD}```\nDone.", ("no_kernel_tag",)),
        (f"{GOOD}```\n</KERNEL>", ()),
    ],
)
def test_parse_answer_among_other_text_returns_it(text: str, defects: tuple[str, ...]) -> None:
    expected = BROKEN if BROKEN in text else GOOD
    assert (source_of(text), parse(text, "triton").defects) == (expected, defects)


@pytest.mark.parametrize("source", [STUB, FRAGMENT])
def test_parse_single_answer_that_is_not_whole_returns_it(source: str) -> None:
    assert source_of(tagged(source)) == source


def test_parse_draft_in_closed_thinking_returns_no_kernel() -> None:
    assert parse(f"<think>\n{tagged(GOOD)}\n</think>\nI give up.", "triton").kernel is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    (
        *("(", "`", "```\n", "```a\n", "~~~\n", "<KERNEL>", "</KERNEL>", "<think>", "</think>"),
        *(" ", "\n", " \n", "\\", "<", "import ", "class ModelNew", "\nclass ModelNew:\n"),
        *(
            "\ud800",
            "\x00",
            "'''",
            '"',
            "\\'",
            "x <think> y ",
            "<KERNEL>\nclass ModelNew:\n",
            "```a\n<KERNEL>",
        ),
    ),
)
def test_a_megabyte_of_anything_is_read(unit: str) -> None:
    # Quadratic reading of this much would run for minutes.
    text = unit * (1_000_000 // len(unit))
    for candidate in (text, tagged(GOOD) + text, text + tagged(GOOD)):
        assert isinstance(parse(candidate, "triton"), Reply)
