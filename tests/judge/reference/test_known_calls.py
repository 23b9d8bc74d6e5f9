"""Calls on values that everybody knows are kept within bounds, and give what they gave."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.known_calls import PublicCalls
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.reference.runner import ExpectedOutput
from kernelgym.rulesets import RULESETS
from support.programs import problem

CPU = torch.device("cpu")
KERNELBENCH = RULESETS["kernelbench"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 90)), max_size=60))
def test_what_is_kept_is_the_latest_and_within_bounds(uses):
    kept = PublicCalls(CPU)
    kept._room = 1000
    last = {}
    for key, size in uses:
        values = [torch.zeros(size, dtype=torch.uint8)]
        found = kept.find(key)
        if found is None:
            kept.keep(
                key, values, ExpectedOutput(torch.zeros(size, dtype=torch.uint8), None, False)
            )
            last[key] = values
        else:
            assert found[0] is last[key]
        assert kept.bytes <= 1000
        # Small enough to be kept with four more of its kind: it is there for the next kernel.
        assert (kept.find(key) is not None) == (found is not None or 10 * size <= 1000)


@pytest.fixture
def calls():
    return PublicCalls(CPU)


def reference(expression, seeds):
    linear = "self.linear = torch.nn.Linear(8, 4)"
    task = problem(f"return {expression}", "torch.rand(16, 8)", init=linear)
    return Reference(task, KERNELBENCH, seeds)


def test_a_second_kernel_finds_what_was_drawn_for_the_first(calls):
    public = Seeds("")
    first = reference("self.linear(x)", public).judged_call(5, 6, "given", calls)
    second = reference("self.linear(x)", public).judged_call(5, 6, "given", calls)
    assert second[0] is first[0] and second[1] is first[1]
    fresh = reference("self.linear(x)", public).judged_call(5, 6, "given", None)
    assert torch.equal(fresh[0][0], first[0][0]) and torch.equal(fresh[1].output, first[1].output)
    other = reference("self.linear(x)", public).judged_call(7, 6, "given", calls)
    assert not torch.equal(other[0][0], first[0][0])


@pytest.mark.parametrize(
    "expression, secret",
    [
        ("self.linear(x)", "5ec2e7"),
        ("torch.nn.functional.dropout(x, 0.5)", ""),
        ("x.add_(1)", ""),
    ],
    ids=["secret values", "random numbers", "changed inputs"],
)
def test_what_may_come_out_otherwise_is_not_kept(calls, expression, secret):
    seeds = Seeds(secret)
    first = reference(expression, seeds).judged_call(5, 6, "given", calls)
    second = reference(expression, seeds).judged_call(5, 6, "given", calls)
    assert second[1] is not first[1] and calls.bytes == 0
