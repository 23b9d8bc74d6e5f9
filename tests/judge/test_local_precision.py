"""Rulesets in fp16 and bf16: what is cast, how close is close enough, end to end."""

import dataclasses

import pytest
import torch

from kernelgym.judge import LocalEvaluator
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.reference import Reference
from kernelgym.rulesets import RULESETS
from kernelgym.types import Status
from support.programs import CPP, TIGHT, TRITON, forward_only, problem, replaced

AFFINE = problem(
    "return torch.relu(x) * 2 + b",
    "torch.randn(37, 131), torch.randn(131)",
    arguments="x, b",
    name="affine",
)
LINEAR = problem(
    "return self.fc(x) + i.to(x.dtype)[:, None]",
    "torch.randn(20, 300), torch.randint(0, 5, (20,))",
    init="self.fc = nn.Linear(300, 40)",
    arguments="x, i",
    name="linear",
)
_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.fixture(scope="module", params=[pytest.param("bf16", marks=pytest.mark.slow), "fp16"])
def narrow(request, cache_dir):
    rules = dataclasses.replace(
        RULESETS["strict"], precision=request.param, limits=TIGHT, require_custom_kernel=False
    )
    with LocalEvaluator(ruleset=rules, cache_dir=cache_dir, timing=False) as evaluator:
        yield evaluator


@pytest.mark.slow
def test_a_triton_kernel_is_judged(narrow):
    kernel = replaced(
        TRITON, "tl.load(x + offsets, mask=mask)", "tl.load(x + offsets, mask=mask).to(tl.float32)"
    )
    assert narrow.evaluate(AFFINE, kernel).correct
    wrong = replaced(kernel, "* 2 + bias", "* 2.1 + bias")
    assert narrow.evaluate(AFFINE, wrong).status is Status.WRONG


@pytest.mark.slow
def test_a_cpp_kernel_is_judged(narrow):
    kernel = replaced(CPP, "extension.affine(x, b)", "extension.affine(x.float(), b.float()).to(x)")
    assert narrow.evaluate(AFFINE, kernel).correct
    assert narrow.evaluate(AFFINE, CPP).status is Status.RUNTIME_ERROR


def test_weights_and_inputs_are_narrow_and_integers_are_not(narrow):
    layer = "self.fc = nn.Linear(300, 40)"
    body = (
        "assert x.dtype == self.fc.weight.dtype != torch.float32 and i.dtype == torch.int64\n"
        "y = x.float() @ self.fc.weight.float().t() + self.fc.bias.float()\n"
        "return (y.to(x.dtype) + i.to(x.dtype)[:, None])"
    )
    assert narrow.evaluate(LINEAR, forward_only(body, "x, i", layer)).correct
    for wrong in ("x.float() * 1.1", "x.float()[:, :280]"):
        changed = body.replace("x.float()", wrong, 1)
        if "280" in wrong:
            changed = changed.replace("self.fc.weight.float()", "self.fc.weight.float()[:, :280]")
        assert narrow.evaluate(LINEAR, forward_only(changed, "x, i", layer)).status is Status.WRONG
    wide = body.replace("return (y.to(x.dtype)", "return (y").replace("i.to(x.dtype)", "i")
    verdict = narrow.evaluate(LINEAR, forward_only(wide, "x, i", layer))
    assert "dtype mismatch" in verdict.message


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_references_and_their_inputs_are_cast(precision):
    rules = dataclasses.replace(RULESETS["strict"], precision=precision)
    reference = Reference(LINEAR, rules, Seeds("ab"))
    reference.prepare()
    x, i = reference.inputs(1)
    expected = reference.expect([x, i], 2)
    assert reference.dtype == x.dtype == expected.output.dtype == _TYPES[precision]
    assert i.dtype == torch.int64 and expected.precise.dtype == torch.float64
    assert {value.dtype for value in reference.model.state_dict().values()} == {x.dtype}
    assert "wide" in reference.plan


def test_fixed_tolerances_widen_as_in_kernelbench():
    for name in RULESETS:
        rules = RULESETS[name]
        assert rules.tolerances == (1e-4, 1e-4)
        for precision in ("fp16", "bf16"):
            narrow = dataclasses.replace(rules, precision=precision)
            assert narrow.tolerances == (1e-2, 1e-2)
            assert dataclasses.replace(narrow, atol=0.1).tolerances == (0.1, 1e-2)


@pytest.mark.slow
def test_kernelbench_forgives_one_per_cent_in_bf16(cache_dir):
    rules = dataclasses.replace(RULESETS["kernelbench"], precision="bf16", limits=TIGHT)
    with LocalEvaluator(ruleset=rules, cache_dir=cache_dir, timing=False) as evaluator:
        near = "return (torch.relu(x) * 2 + b) * 1.006"
        assert evaluator.evaluate(AFFINE, forward_only(near, "x, b")).correct
        far = near.replace("1.006", "1.06")
        assert evaluator.evaluate(AFFINE, forward_only(far, "x, b")).status is Status.WRONG
