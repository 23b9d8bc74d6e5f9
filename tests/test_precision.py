"""The floating-point types that a problem's text names, and what follows from them."""

import dataclasses

import pytest

from kernelgym.precision import judged_precisions, named_precisions, screening_rules
from kernelgym.rulesets import RULESETS
from kernelgym.types import Problem

STRICT, KERNELBENCH = RULESETS["strict"], RULESETS["kernelbench"]


def _problem(source: str) -> Problem:
    return Problem("Test/p", "Test", 0, "p", source)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("x = torch.randn(3)", ()),
        ("x = torch.randn(3, dtype=torch.bfloat16)", ("bf16",)),
        ("x = torch.randn(3).half()", ("fp16",)),
        ("x = torch.half", ("fp16",)),
        ("from torch import float64\nx = y.to(float64).bfloat16()", ("bf16", "fp64")),
        ("half = 3\nx = self.half + half  # float16", ()),
        ("x = 'bfloat16'", ()),
        ("x = (", ()),
    ],
)
def test_types_are_found_by_their_names(source: str, named: tuple[str, ...]) -> None:
    assert named_precisions(source) == named


def test_own_precision_is_fp32_without_names() -> None:
    plain, half = _problem("x = torch.randn(3)"), _problem("x = torch.randn(3).half()")
    assert judged_precisions(plain, STRICT) == ("fp32",)
    assert judged_precisions(half, STRICT) == ("fp16",)
    assert judged_precisions(half, KERNELBENCH) == ("fp32",)
    bf16 = dataclasses.replace(STRICT, precision="bf16")
    assert judged_precisions(half, bf16) == ("bf16",)


def test_screening_goes_by_the_lowest_precision() -> None:
    mixed = _problem("x = torch.randn(3).double()\ny = x.half()")
    assert screening_rules(mixed, STRICT).precision == "fp16"
    assert screening_rules(mixed, KERNELBENCH) is KERNELBENCH
