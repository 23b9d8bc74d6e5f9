"""Specs whose own kernel says what is right: the problems, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelgym.errors import UsageError
from kernelgym.judge.problem_code import names_of, output_bytes
from kernelgym.prompts.first_message import problem_prompt
from kernelgym.retrieval.entry import IndexEntry, unusable
from kernelgym.starting_kernel import meaning_of_correct, starting_kernel
from kernelgym.suites.spec import SpecTensor
from kernelgym.suites.spec_checks import check_spec
from kernelgym.suites.spec_files import spec_from
from kernelgym.suites.spec_suite import SpecSuite
from kernelgym.types import Problem
from support.specs import PRODUCT, SPEC, TRITON_SPEC, changed


def suite(spec: dict[str, Any], **changes: Any) -> SpecSuite:
    return SpecSuite(spec_from(changed(spec, reference="start", **changes), Path()))


@pytest.mark.parametrize("spec", [SPEC, TRITON_SPEC, PRODUCT])
def test_problem_of_a_start_holds_the_specs_kernel(spec: dict[str, Any]) -> None:
    found = suite(spec)
    for problem in found.problems():
        assert starting_kernel(problem) == found.kernel
        assert meaning_of_correct(problem) == "agrees with the starting kernel"


def test_kernel_with_every_kind_of_quotes_is_read_back() -> None:
    source = TRITON_SPEC["source"] + "\nONE = \"\"\"a\"\"\"\nTWO = '''b\\n'''\n"
    found = suite(TRITON_SPEC, source=source)
    assert starting_kernel(found.problems()[0]) == found.kernel


def test_model_of_a_start_gives_shapes_and_no_values() -> None:
    problem = suite(SPEC).problems()[0]
    names = names_of(problem.source, problem.id)
    model = names["Model"](*names["get_init_inputs"]())
    (x,) = names["get_inputs"]()
    assert model(x.to("meta")).shape == (4, 8) and output_bytes(problem) == 128
    with pytest.raises(RuntimeError, match="outputs are those of STARTING_KERNEL"):
        model(x)


def test_changed_tensor_of_a_start_is_returned_after_the_outputs() -> None:
    tensors = [
        {"name": "x", "shape": ["rows", "columns"], "role": "inout", "dtype": "float16"},
        {"name": "y", "shape": ["columns", "rows"], "role": "output", "layout": "transposed"},
    ]
    changes = {"contract__tensors": tensors, "entry": "ModelNew", "launch": None}
    problem = suite(TRITON_SPEC, **changes).problems()[0]
    names = names_of(problem.source, problem.id)
    model = names["Model"](*names["get_init_inputs"]())
    y, x = model(*(each.to("meta") for each in names["get_inputs"]()))
    assert (y.shape, y.stride(), y.dtype) == ((8, 4), (1, 8), torch.float32)
    assert (x.shape, x.dtype) == ((4, 8), torch.float16)


def test_start_without_an_input_is_refused_in_one_line() -> None:
    spec = suite(SPEC).spec
    alone = (SpecTensor("y", (4,), role="output"),)
    for tensors in ((), alone):
        contract = type(spec.contract)(axes=spec.contract.axes, tensors=tensors)
        with pytest.raises(UsageError, match="needs an input and an output") as caught:
            check_spec(dataclasses.replace(spec, contract=contract))
        assert "\n" not in str(caught.value)


def test_other_words_than_start_are_refused() -> None:
    with pytest.raises(UsageError, match="reference"):
        spec_from(changed(SPEC, reference="begin"), Path())


@pytest.mark.parametrize("source", ["x = 1", "STARTING_KERNEL = None", "STARTING_KERNEL = (", ""])
def test_usual_problem_has_no_starting_kernel(source: str) -> None:
    problem = Problem("Test/1", "Test", 1, "p", source)
    assert starting_kernel(problem) is None
    assert meaning_of_correct(problem) == "agrees with the reference"


@pytest.mark.parametrize(
    ("ruleset", "said"),
    [
        ("strict", "within atol 0.0001 times a typical magnitude"),
        ("kernelbench", "atol 0.0001 and"),
    ],
)
def test_prompt_of_a_start_says_what_outputs_agree_with(ruleset: str, said: str) -> None:
    told = problem_prompt(suite(SPEC).problems()[0], "cpp", "cpu", ruleset=ruleset)
    assert "those of the kernel in `STARTING_KERNEL`" in told and said in told
    assert "vary in distribution" not in told and "rounding error" not in told


def test_retrieval_takes_no_problem_of_a_start() -> None:
    found = suite(SPEC)
    entry = IndexEntry(found.problems()[0].source, found.kernel.source, "cpp")
    assert unusable(entry) == "starting_kernel"
