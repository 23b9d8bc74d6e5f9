"""Problems that cannot be judged are told from those that can."""

import dataclasses

import pytest

from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.reference import Reference
from kernelgym.rulesets import RULESETS
from kernelgym.types import Kernel, Status
from support.programs import problem

STRICT = RULESETS["strict"]
X = "torch.randn(20, 64)"
CODES = {
    "empty": (("return x * 2", "torch.randn(0, 5)"), "empty_output"),
    "empty parts": (("return x[:0], x[:0] * 2", X), "empty_output"),
    "uninitialised": (("return torch.empty_like(x)", X), "nondeterministic_reference"),
    "partly uninitialised": (
        ("y = torch.empty_like(x)\ny[1:] = x[1:]\nreturn y", X),
        "nondeterministic_reference",
    ),
    "entropy": (("import os\nreturn x * (1 + os.urandom(1)[0])", X), "nondeterministic_reference"),
    "constant": (("return torch.softmax(x, 1).mean(1)", X), "input_independent"),
    "fixed inputs": (("return x.tanh()", "torch.arange(30.0).reshape(5, 6)"), "input_independent"),
    "no inputs": (("return torch.arange(12.0)", X), "input_independent"),
    "small integers": (("return (x > -1e9).any(1)", X), "input_independent"),
    "sound": (("return x.relu()", X), ""),
    "dropout": (("return nn.functional.dropout(x, 0.5, True)", X), ""),
    "counted": (
        ("self.calls = getattr(self, 'calls', 0) + 1\nreturn x * self.calls", X),
        "",
    ),
    "in place": (("return x.mul_(2)", X), ""),
    "one label": (("return x.sum(0).argmax()", X), ""),
    "partly empty": (("return x[:0], x * 2", X), ""),
}


@pytest.mark.parametrize("name", CODES)
def test_flaw_of_a_problem_is_found(name):
    (forward, inputs), code = CODES[name]
    reference = Reference(problem(forward, inputs), STRICT, Seeds("ab"))
    reference.prepare()
    flaw = reference.flaw
    assert (flaw.code if flaw else "") == code
    assert flaw is None or flaw.message.startswith("the problem cannot be judged: the reference")


def test_state_that_calls_change_is_no_flaw():
    init = "self.register_buffer('total', torch.zeros(64))"
    forward = "self.total += x.sum(0)\nreturn x + self.total"
    reference = Reference(problem(forward, X, init=init), STRICT, Seeds("ab"))
    reference.prepare()
    assert reference.flaw is None


def test_without_evidence_problems_are_not_tested():
    rules = dataclasses.replace(STRICT, require_custom_kernel=False)
    reference = Reference(problem("return torch.empty_like(x)", X), rules, Seeds("ab"))
    reference.prepare()
    assert reference.flaw is None


KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def fill(out, n, VALUE: tl.constexpr):
    at = tl.arange(0, 64)
    tl.store(out + at, tl.full((64,), VALUE, tl.float32), mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(20)
        fill[(1,)](out, 20, VALUE=1 / 64)
        return out
"""


def test_right_kernel_of_a_constant_problem_is_not_judged_and_a_wrong_one_is_wrong(asking):
    constant = problem("return torch.softmax(x, 1).mean(1)", X)
    right, wrong = (
        asking.evaluate(constant, Kernel(source, "triton"))
        for source in (KERNEL, KERNEL.replace("1 / 64", "0.5"))
    )
    assert right.status is Status.UNAVAILABLE and wrong.status is Status.WRONG
    assert [finding.code for finding in right.findings] == ["input_independent"]
