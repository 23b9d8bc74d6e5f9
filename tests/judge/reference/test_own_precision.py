"""Precision `own`: types stay as the problem makes them, and the fp64 run works all the same."""

import dataclasses

import pytest
import torch
from torch import nn

from kernelgym.judge.compare.compare import compare
from kernelgym.judge.compare.structure import describe_shape_of
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.reference.widened import Widened
from kernelgym.rulesets import RULESETS
from support.programs import problem

STRICT = RULESETS["strict"]
MIXED = problem(
    "y = x.float() * self.w\nreturn self.n(y.to(torch.bfloat16)), y.half()",
    "torch.randn(16, 64, dtype=torch.bfloat16)",
    init="self.w = nn.Parameter(torch.rand(64))\nself.n = nn.LayerNorm(64, dtype=torch.bfloat16)",
)
WEIGHT = "self.w = nn.Parameter(torch.rand(64, 16))"
CASES = [
    ("torch.randn(16, 64)", "fp32", torch.float32),
    ("torch.randn(16, 64).half()", "fp16", torch.float16),
    ("torch.randn(16, 64, dtype=torch.bfloat16)", "bf16", torch.bfloat16),
    ("torch.randn(16, 64, dtype=torch.float64)", "fp64", torch.float64),
]


def _prepared(given, rules=STRICT):
    reference = Reference(given, rules, Seeds("ab"))
    reference.prepare()
    return reference, reference.inputs(1)


@pytest.mark.parametrize(("inputs", "precision", "dtype"), CASES)
def test_inputs_keep_their_type_and_set_precision(inputs, precision, dtype):
    reference, (x,) = _prepared(problem("return torch.tanh(x)", inputs))
    expected = reference.expect([x], 2)
    assert x.dtype == expected.output.dtype == dtype
    assert expected.precise.dtype == torch.float64
    assert reference.rules.precision == expected.precision == precision
    assert set(reference.plan) > {"given"}


def test_mixed_types_stay_and_have_an_fp64_twin():
    reference, (x,) = _prepared(MIXED)
    expected = reference.expect([x], 2)
    assert [part.dtype for part in expected.output] == [torch.bfloat16, torch.float16]
    assert [part.dtype for part in expected.precise] == [torch.float64] * 2
    assert {value.dtype for value in reference.model.state_dict().values()} == {
        torch.float32,
        torch.bfloat16,
    }
    assert reference.rules.precision == "bf16"
    assert reference.rules.tolerances == (1e-2, 1e-2)
    assert set(reference.state) == {"n.weight", "n.bias"}


def test_an_fp32_model_that_names_float_has_an_fp64_twin_and_other_kinds_of_inputs():
    given = problem("return x.float() @ self.w", "torch.randn(8, 64)", init=WEIGHT)
    reference, (x,) = _prepared(given)
    assert reference.expect([x], 2).precise.dtype == torch.float64
    assert set(reference.plan) > {"given"}


def test_a_ruleset_with_a_precision_casts_all():
    reference, (x,) = _prepared(MIXED, dataclasses.replace(STRICT, precision="fp32"))
    assert x.dtype == torch.float32
    assert {value.dtype for value in reference.model.state_dict().values()} == {torch.float32}


def test_kernelbench_problems_are_compared_as_before():
    given = problem("return torch.tanh(x)", "torch.randn(16, 64)")
    own, fixed = (
        _prepared(given, dataclasses.replace(STRICT, precision=name))[0].rules
        for name in ("own", "fp32")
    )
    assert own == fixed


def _passes(reference, x, change):
    expected = reference.expect([x], 2)
    output = change(expected.precise)
    claimed = describe_shape_of(expected.output)
    known = expected.calibration
    rules = reference.rules
    return compare(claimed, [output], expected.output, expected.precise, rules, known).passed


@pytest.mark.parametrize(
    ("inputs", "lower"),
    [
        (CASES[0][0], torch.float16),
        (CASES[0][0], torch.bfloat16),
        (CASES[1][0], torch.float8_e4m3fn),
        (CASES[2][0], torch.float8_e4m3fn),
        (CASES[3][0], torch.float32),
    ],
)
def test_less_than_the_own_precision_is_wrong(inputs, lower):
    # A softmax's factor is a reduction's, 16: eight-bit results would pass it in bf16.
    reference, (x,) = _prepared(problem("return torch.softmax(x, 1) * 64", inputs))
    assert _passes(reference, x, lambda truth: truth.to(x.dtype))
    assert not _passes(reference, x, lambda truth: truth.to(lower).to(x.dtype))


def test_widened_conversions_and_factories_give_fp64():
    layer = nn.Linear(4, 3).double()
    x = torch.randn(2, 4, dtype=torch.float64)
    with Widened(), torch.no_grad():
        results = [
            x.half(),
            x.to(torch.bfloat16),
            x.float().type(torch.float16),
            torch.zeros(3),
            torch.zeros_like(x, dtype=torch.float16),
            torch.softmax(x, 1, dtype=torch.float32),
            layer(x.to(torch.float32)),
        ]
        assert torch.arange(3).dtype == torch.int64
        assert (x > 0).to(torch.int32).dtype == torch.int32
    assert {value.dtype for value in results} == {torch.float64}
    assert torch.equal(results[1], x)
    assert torch.zeros(3).dtype == torch.float32
