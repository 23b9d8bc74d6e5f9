"""Where strict rules refuse an honest style, the message says what to do."""

import dataclasses

import pytest

from kernelgym.judge import LocalEvaluator
from kernelgym.judge.session.advice import config_advice, interpreted_advice
from kernelgym.rulesets import RULESETS
from kernelgym.types import Status
from support.programs import TIGHT, forward_only, problem

NORM = problem("return self.bn(x)", "torch.randn(20, 8)", init="self.bn = nn.BatchNorm1d(8).eval()")
SUM = problem("return x.sum(1)", "torch.rand(64, 500)")
LAYER = "self.bn = nn.BatchNorm1d(8).eval()\n"


def _folded(place):
    fold = (
        "s = self.bn.weight / torch.sqrt(self.bn.running_var + self.bn.eps)\n"
        "b = self.bn.bias - self.bn.running_mean * s\n"
    )
    if place == "constructor":
        return forward_only(
            "return x * self.s + self.b", "x", LAYER + fold + "self.s, self.b = s, b"
        )
    return forward_only(fold + "return x * s + b", "x", LAYER)


def test_a_fold_in_the_constructor_is_told(strict):
    verdict = strict.evaluate(NORM, _folded("constructor"))
    assert verdict.status is Status.WRONG
    assert "has replaced bn.bias, bn.running_mean, bn.running_var, bn.weight" in verdict.message
    assert "fold or pack them in forward" in verdict.message


def test_a_fold_in_forward_is_right(strict):
    assert strict.evaluate(NORM, _folded("forward")).correct


def test_another_error_is_no_fold(strict):
    kernel = forward_only("return self.bn(x) * 1.5", "x", LAYER)
    verdict = strict.evaluate(NORM, kernel)
    assert verdict.status is Status.WRONG and "constructor" not in verdict.message


def test_an_error_like_a_running_sums_is_told(strict):
    # As far off as an fp32 running sum of a few million numbers, in every call.
    verdict = strict.evaluate(SUM, forward_only("return x.sum(1) * 1.00005"))
    assert verdict.status is Status.WRONG
    assert "instead of one running fp32 sum" in verdict.message
    assert "partial sums" in verdict.message


def test_a_large_error_is_no_rounding(strict):
    verdict = strict.evaluate(SUM, forward_only("return x.sum(1) * 1.01"))
    assert verdict.status is Status.WRONG and "rounding" not in verdict.message


@pytest.mark.slow
def test_advice_comes_once_and_only_where_rules_ask(cache_dir):
    rules = dataclasses.replace(
        RULESETS["kernelbench"], limits=TIGHT, require_custom_kernel=False, atol=1e-9, rtol=1e-9
    )
    with LocalEvaluator(ruleset=rules, cache_dir=cache_dir, timing=False) as evaluator:
        verdict = evaluator.evaluate(SUM, forward_only("return x.sum(1) * 1.00001"))
    assert verdict.status is Status.WRONG and "fp64" not in verdict.message


DOT = "import triton.language as tl\nc = tl.dot(a, b)\nd = tl.dot(a, b, input_precision='ieee')\n"
LOAD = "x = tl.load(p, mask=m)\ny = tl.load(p, m)\nz = tl.load(p, m, 0.0)\nw = tl.load(p)\n"


@pytest.mark.parametrize(
    ("source", "nonfinite", "told"),
    [
        (DOT, False, 'input_precision="ieee" (line 2)'),
        (DOT, True, ""),
        (LOAD, True, "(lines 1, 2)"),
        (LOAD, False, ""),
        ("x = tl.load(p, mask=m, other=0.0)", True, ""),
        ("x = tl.load(p, boundary_check=(0,), padding_option='zero')", True, ""),
        ("not python", True, ""),
    ],
)
def test_lines_that_a_gpu_leaves_undefined_are_named(source, nonfinite, told):
    found = interpreted_advice(source, nonfinite)
    assert (told in found) if told else found == ""


def test_config_advice_is_given_to_autotuned_kernels_alone():
    assert config_advice("@triton.jit\ndef f(x): pass") == ""
    assert "every config must be right" in config_advice("@triton.autotune(CONFIGS, key=[])")
