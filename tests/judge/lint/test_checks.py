"""The degeneracy gate: for every reason a problem that fails, and a near miss that passes."""

from __future__ import annotations

import dataclasses
import time

import pytest
import torch

from kernelgym.hygiene import REASONS
from kernelgym.judge.lint.checks import examine
from kernelgym.judge.lint.trivial_answers import trivial_answers
from kernelgym.rulesets import RULESETS, Ruleset
from kernelgym.types import Problem

STRICT, KERNELBENCH = RULESETS["strict"], RULESETS["kernelbench"]


def problem(
    body: str, init: str = "", inputs: str = "torch.randn(16, 32)", args: str = "x"
) -> Problem:
    constructor = (
        f"def __init__(self):\n        super().__init__()\n        {init}\n" if init else ""
    )
    source = f"""\
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    {constructor}
    def forward(self, {args}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
    return Problem("own/made_up", "own", 0, "made_up", source)


def found(given: Problem, rules: Ruleset = STRICT, seconds: float = 60.0) -> dict[str, str]:
    reasons: dict[str, str] = {}
    deadline = time.monotonic() + seconds
    untested = examine(given, rules, "cpu", reasons.__setitem__, deadline)
    assert set(reasons) <= set(REASONS)
    return {**reasons, "untested": untested} if untested else reasons


LINEAR = "self.w = nn.Parameter(torch.randn(32, 8))"

FAIL_AND_PASS = {
    "zeros": (
        problem("return torch.relu(x - x.max(1, keepdim=True).values)"),
        problem("return torch.relu(x - x.mean(1, keepdim=True))"),
    ),
    "constant": (
        problem("return (x > 1e9).float() + 3"),
        problem("return (x > 0).float() + 3"),
    ),
    "input_independent": (
        problem("return torch.softmax(self.w, 0)[:4] + 0 * x[:4, :8]", LINEAR),
        problem("return torch.softmax(self.w, 0)[:4] + 0.1 * x[:4, :8]", LINEAR),
    ),
    "identity": (
        problem("return torch.clamp(x, -1e9, 1e9)"),
        problem("return torch.clamp(x, -0.5, 0.5)"),
    ),
    "nondeterministic_reference": (
        problem("return F.dropout(x, 0.5, training=True)"),
        problem("return F.dropout(x, 0.5, training=False) * 2"),
    ),
    "idle_parameters": (
        problem(
            "y = (x @ self.w + self.b)\n        return y - y.mean(0)",
            f"{LINEAR}; self.b = nn.Parameter(torch.randn(8))",
        ),
        problem(
            "y = (x @ self.w + self.b)\n        return y - y.mean(1, keepdim=True)",
            f"{LINEAR}; self.b = nn.Parameter(torch.randn(8))",
        ),
    ),
    "non_finite_output": (
        problem("return torch.log(x)"),
        problem("return torch.log(x.abs() + 0.1)"),
    ),
    "broken_reference": (
        problem("return x @ torch.ones(31, 4)"),
        problem("return x @ torch.randn(32, 4, generator=torch.Generator().manual_seed(1))"),
    ),
}


@pytest.mark.parametrize("rules", [STRICT, KERNELBENCH], ids=["strict", "kernelbench"])
@pytest.mark.parametrize("reason", FAIL_AND_PASS)
def test_each_reason_and_its_near_miss(reason: str, rules: Ruleset) -> None:
    bad, good = FAIL_AND_PASS[reason]
    assert reason in found(bad, rules)
    assert found(good, rules) == {}


def test_every_reason_that_can_be_tested_is() -> None:
    assert set(REASONS) - set(FAIL_AND_PASS) == {"partial_computation", "analytic"}


def test_no_reason_brings_unrelated_ones_along() -> None:
    assert set(found(FAIL_AND_PASS["identity"][0])) == {"identity"}
    assert set(found(FAIL_AND_PASS["nondeterministic_reference"][0])) == {
        "nondeterministic_reference"
    }
    assert set(found(FAIL_AND_PASS["non_finite_output"][0])) == {"non_finite_output"}
    assert set(found(FAIL_AND_PASS["idle_parameters"][0])) == {"idle_parameters"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        # Outputs below the absolute tolerance, and inputs on which nothing is cut off.
        (problem("return torch.softmax(x, 1)", inputs="torch.rand(4, 1 << 16)"), "zeros"),
        (problem("return torch.relu(x)", inputs="torch.rand(16, 32)"), "identity"),
    ],
)
def test_rulesets_differ(given: Problem, reason: str) -> None:
    assert reason in found(given, KERNELBENCH)
    assert found(given, STRICT) == {}


def test_precision_counts() -> None:
    half = dataclasses.replace(KERNELBENCH, precision="fp16", atol=1e-2, rtol=1e-2)
    given = problem("return torch.tanh(x) * 5e-3")
    assert found(given, KERNELBENCH) == {}
    assert {"zeros", "constant", "input_independent"} <= set(found(given, half))


def test_idle_parameters_are_named() -> None:
    bad, _ = FAIL_AND_PASS["idle_parameters"]
    assert found(bad)["idle_parameters"] == "b"
    many = problem("return x * 2", "self.p = nn.ParameterList(torch.ones(2) for _ in range(7))")
    assert "p.4 and 2 more" in found(many)["idle_parameters"]


def test_parameters_after_the_deadline_are_said_to_be_untested() -> None:
    _, good = FAIL_AND_PASS["idle_parameters"]
    assert found(good, seconds=-1) == {"untested": "parameters from 'w' on (0 of 2 done)"}


def test_random_weights_that_no_seed_reaches() -> None:
    given = problem(
        "return x @ self.w",
        "import numpy; self.w = nn.Parameter(torch.tensor(numpy.random.rand(32, 8)).float())",
    )
    assert "run twice" in found(given)["nondeterministic_reference"]


def test_every_part_of_the_output_must_be_worthless() -> None:
    assert found(problem("return x, torch.zeros(4)")) == {}
    both = found(problem("return {'a': x * 1, 'b': [torch.zeros(4)]}", args="x"))
    assert both == {}  # no input has four elements
    assert "identity" in found(
        problem("return y, x", args="x, y", inputs="torch.randn(3), torch.randn(5)")
    )


def test_numbers_and_whole_numbers_are_outputs_too() -> None:
    assert "constant" in found(problem("return (x > 1e6).sum(1)"))
    assert found(problem("return x.argmax(1)")) == {}
    assert "constant" in found(problem("return x.shape[0], 7"))
    assert found(problem("return float(x.sum())")) == {}


def test_empty_outputs_are_worthless() -> None:
    assert "zeros" in found(problem("return x[:0]"))


def test_running_statistics_are_no_disagreement() -> None:
    assert found(problem("return self.n(x)", "self.n = nn.BatchNorm1d(32)")) == {}


def test_lack_of_memory_or_of_a_package_is_no_fault_of_the_problem() -> None:
    huge = problem("return x", inputs="torch.empty(1 << 50)")
    assert "memory" in found(huge)["untested"]
    missing = problem("import no_such_package_here")
    assert "no_such_package_here" in found(missing)["untested"]


@pytest.mark.parametrize(
    "raised",
    [
        "raise ConnectionError('no route to the hub')",
        "raise FileNotFoundError('no route to the hub')",
        "try:\n            raise OSError('offline')\n        except OSError as error:\n"
        "            raise ValueError('no route to the hub') from error",
    ],
)
def test_examine_problem_that_needs_the_network_is_not_called_broken(raised: str) -> None:
    result = found(problem(raised))
    assert set(result) == {"untested"} and "no route to the hub" in result["untested"]


def test_constants_lie_in_the_middle() -> None:
    output = torch.tensor([1.0, 1.0, 9.0])
    answers = trivial_answers([], output)["constant"][0]
    assert sorted(float(answer([])[0]) for answer in answers) == pytest.approx([1.0, 1.8, 5.0])
