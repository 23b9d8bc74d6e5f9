from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.answers.parsing import parse
from kernelgym.errors import UnknownName, UsageError
from kernelgym.feedback import CATEGORIES, LEVELS, category, feedback
from kernelgym.testing import SAMPLE_KERNELS, verdict
from kernelgym.tokens import TokenCounter, estimate_tokens
from kernelgym.types import Finding, Reply, Severity, Status, Verdict
from support.strategies import texts, verdicts

TIDY = Reply(SAMPLE_KERNELS["triton"])


def words(text: str) -> int:
    """A tokenizer that is nothing like the estimate: one token a word, and one a line."""
    return len(text.split()) + text.count("\n")


@given(
    verdicts(),
    texts,
    st.integers(100, 500),
    st.sampled_from(LEVELS),
    st.sampled_from((estimate_tokens, words, len)),
)
def test_feedback_keeps_its_budget_and_is_deterministic(
    found: Verdict, text: str, budget: int, level: str, count: TokenCounter
) -> None:
    reply = parse(text, "triton")
    told = feedback(found, reply, level=level, budget=budget, count=count)
    assert count(str(told)) <= budget
    assert told == feedback(found, reply, level=level, budget=budget, count=count)
    assert told.category in CATEGORIES
    assert told.headline and (told.hint or count is len)


@given(verdicts(), texts)
def test_levels_tell_more_and_more(found: Verdict, text: str) -> None:
    reply = parse(text, "triton")
    told = [feedback(found, reply, level=level, budget=100_000) for level in LEVELS]
    assert len({each.category for each in told}) == 1
    assert len({each.headline for each in told}) == 1
    minimal, standard, profile = (len(each.detail) for each in told)
    assert minimal <= standard <= profile


@given(verdicts((Status.WRONG,)), verdicts((Status.WRONG,)))
def test_minimal_feedback_says_nothing_of_values(one: Verdict, other: Verdict) -> None:
    """Two wrong kernels whose outputs have nothing in common are told the same."""
    if one.mismatch is None:
        return
    other = dataclasses.replace(
        one, mismatch=other.mismatch or one.mismatch, max_abs_error=other.max_abs_error
    )
    told = feedback(one, TIDY, level="minimal"), feedback(other, TIDY, level="minimal")
    assert told[0] == told[1]


@given(verdicts(), st.sampled_from(LEVELS))
def test_the_secret_seed_is_never_told(found: Verdict, level: str) -> None:
    found = dataclasses.replace(found, message="m", log="", findings=(), seed="0b5ec3e7")
    plain = dataclasses.replace(found, seed="")
    assert feedback(found, TIDY, level=level) == feedback(plain, TIDY, level=level)


@given(verdicts(), st.sampled_from(LEVELS))
def test_the_gist_is_one_short_line(found: Verdict, level: str) -> None:
    gist = feedback(found, TIDY, level=level).gist
    assert len(gist) <= 160
    assert (
        level != "minimal"
        or found.mismatch is None
        or found.mismatch.pattern not in gist
        or (not found.mismatch.pattern)
    )


def test_unknown_levels_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean standard"):
        feedback(verdict("wrong"), TIDY, level="standart")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (verdict("no_kernel"), "format"),
        (verdict("rejected", message="uses too much memory, wrong shape"), "policy"),
        (verdict("compile_error", message="NameError: name 'tl' is not defined"), "compile"),
        (verdict("runtime_error", message="IndexError: list index out of range"), "runtime"),
        (verdict("runtime_error", message="CUDA out of memory. Tried to allocate"), "memory"),
        (verdict("runtime_error", message="std::bad_alloc"), "memory"),
        (verdict("runtime_error", message="MemoryError"), "memory"),
        (verdict("runtime_error", message="an illegal memory access was encountered"), "runtime"),
        (verdict("runtime_error", message="shape '[3]' is invalid for input"), "shape"),
        (verdict("runtime_error", message="expected scalar type Float but found Half"), "dtype"),
        (verdict("timeout", message="memory"), "timeout"),
        (verdict("wrong", message="output 0 has shape (7, 32) instead of (7, 33)"), "shape"),
        (verdict("wrong", message="output 0 has dtype float16 instead of float32"), "dtype"),
        (verdict("wrong", message="values differ"), "numerics"),
        (verdict("wrong", message="the kernel changed input tensor 0"), "policy"),
        (verdict("unavailable", message="out of memory"), "infrastructure"),
        (verdict("correct"), "success"),
        (verdict("correct", speedup=1.4), "success"),
        (verdict("correct", speedup=0.6), "slow"),
    ],
)
def test_categories(found: Verdict, expected: str) -> None:
    assert category(found) == expected
    assert feedback(found, TIDY).category == expected


def test_every_category_is_reached_by_some_verdict() -> None:
    reached = {mark for mark in CATEGORIES}
    tested = {args[1] for args in test_categories.pytestmark[0].args[1]}
    assert reached == tested


def test_speed_is_told_with_its_interval() -> None:
    told = str(feedback(verdict("correct", speedup=1.5, speedup_low=1.31), TIDY))
    assert "1.50x" in told and "1.31x" in told and "faster" in told
    told = str(feedback(verdict("correct", speedup=0.5), TIDY))
    assert "slower" in told


def test_an_untimed_success_says_so() -> None:
    told = str(feedback(verdict("correct"), TIDY))
    assert "not timed" in told and "x (" not in told


def test_a_wrong_kernel_is_told_the_size_of_its_errors() -> None:
    told = str(feedback(verdict("wrong", trials_passed=1, trials=4), TIDY))
    assert "1 of 4" in told and "0.5 absolute" in told


def test_message_and_log_are_told_and_the_log_gives_way() -> None:
    found = verdict("compile_error", message="error: no such name", log="L" * 10_000)
    told = str(feedback(found, TIDY, budget=150))
    assert "error: no such name" in told
    assert "middle left out" in told
    assert len(told) <= 600


def test_findings_and_defects_are_told_hard_ones_first() -> None:
    findings = (
        Finding("stream_use", "a stream", Severity.SOFT, 3),
        Finding("forbidden_import", "an import", Severity.HARD, 9),
    )
    reply = Reply(SAMPLE_KERNELS["triton"], "", ("several_answers",))
    told = str(feedback(verdict("rejected", findings=findings), reply))
    assert told.index("[forbidden_import] (line 9)") < told.index("[stream_use] (line 3)")
    assert "more than one answer" in told


def test_many_findings_are_counted_not_listed() -> None:
    findings = tuple(Finding(f"code_{i}", "m", line=i) for i in range(1, 31))
    told = str(feedback(verdict("wrong", findings=findings), TIDY))
    assert "and 22 more notes" in told


def test_a_budget_too_small_to_say_anything_is_refused() -> None:
    with pytest.raises(UsageError, match="100"):
        feedback(verdict("wrong"), TIDY, budget=99)
