from __future__ import annotations

import pytest

from kernelgym.answers.parsing import parse
from kernelgym.errors import UnknownName, UsageError
from kernelgym.languages import LANGUAGES
from kernelgym.prompts.first_message import EXAMPLE_COUNTS, problem_prompt, system_prompt
from kernelgym.prompts.hardware import Hardware
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.types import Problem


def prompt(**options: object) -> str:
    arguments = {"language": "triton", "device": "cuda:0"} | options
    language, device = arguments.pop("language"), arguments.pop("device")
    return problem_prompt(SAMPLE_PROBLEM, language, device, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_the_system_part_says_what_matters(language: str) -> None:
    text = system_prompt(language)
    for needed in (
        "ModelNew",
        "<think>",
        "<KERNEL>",
        "same order",
        "Inputs differ from call to call",
        LANGUAGES[language].title,
    ):
        assert needed in text
    own = LANGUAGES[language].own_kernel
    assert ("triton.jit" in text) == (language == "triton")
    assert ("load_inline" in text) == ("load_inline" in own.builders)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_examples_read_as_answers_in_the_form_asked_for(language: str) -> None:
    text = problem_prompt(SAMPLE_PROBLEM, language, "cpu", examples="few_shot")
    found = parse(text, language)
    assert found.kernel is not None
    assert found.kernel.source == LANGUAGES[language].examples[-1].kernel


@pytest.mark.parametrize(("name", "count"), sorted(EXAMPLE_COUNTS.items()))
def test_examples_are_as_many_as_asked_for(name: str, count: int) -> None:
    assert prompt(examples=name).count("# Example ") == count
    assert prompt(examples=count) == prompt(examples=name)


@pytest.mark.parametrize("wrong", [-1, 3, "ten_shot"])
def test_other_numbers_of_examples_are_refused(wrong: object) -> None:
    with pytest.raises(UsageError):
        prompt(examples=wrong)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_has_every_named_number_of_examples(language: str) -> None:
    assert len(LANGUAGES[language].examples) >= max(EXAMPLE_COUNTS.values())


def test_the_reference_is_given_in_full() -> None:
    assert SAMPLE_PROBLEM.source.strip() in prompt()


def test_turns() -> None:
    assert "You have one turn" in prompt(max_turns=1)
    assert "up to 6 turns" in prompt(max_turns=6)


def test_speed_is_promised_only_where_it_is_measured() -> None:
    assert "Faster is better" in prompt(device="cuda:0")
    assert "only correctness" in prompt(device="cpu").lower()
    assert "interpreter" in prompt(device="cpu")
    assert "Faster is better" in prompt(language="cpp", device="cpu")
    assert "interpreter" not in prompt(language="cpp", device="cpu")


def test_the_ruleset_is_told() -> None:
    assert "atol 0.0001" in prompt(ruleset="kernelbench")
    assert "rounding error" in prompt(ruleset="strict")
    assert "Refused" in prompt(ruleset="strict") and "Refused" not in prompt(ruleset="kernelbench")
    with pytest.raises(UnknownName):
        prompt(ruleset="lax")


def test_hardware_is_told_only_if_given_and_only_what_is_known() -> None:
    assert "# The hardware" not in prompt()
    text = prompt(hardware=Hardware("NVIDIA H200", memory_bytes=141 << 30, bandwidth_gb_s=4800))
    assert "NVIDIA H200" in text and "141 GiB" in text and "4800 GB/s" in text
    assert "TFLOP" not in text
    assert "Shared memory per block" not in text


def test_prompts_tell_the_precision_judged() -> None:
    source = SAMPLE_PROBLEM.source.replace("torch.randn(7, 33)", "torch.randn(7, 33).bfloat16()")
    half = Problem("Test/half", "Test", 0, "half", source)
    assert "all tensors are on it, in fp32." in prompt()
    told = problem_prompt(half, "triton", "cuda:0")
    assert "Nothing is cast" in told and "bf16 where its source says so" in told
    cast = problem_prompt(half, "triton", "cuda:0", ruleset="kernelbench")
    assert "all tensors are on it, in fp32." in cast
