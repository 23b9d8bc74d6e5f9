"""What a problem can bear: the inputs on which its operators have work to do."""

import pytest
import torch

from kernelgym.judge.inputs.kinds import GIVEN
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.reference import Reference
from kernelgym.rulesets import RULESETS
from support.programs import problem

GELU, RELU = "return nn.functional.gelu(x)", "return x.relu()"


def _prepared(forward, inputs):
    reference = Reference(problem(forward, inputs), RULESETS["strict"], Seeds("5eed"))
    reference.prepare()
    return reference


@pytest.mark.parametrize(
    ("forward", "inputs", "telling"),
    [
        (RELU, "torch.randn(20, 30)", GIVEN),
        (RELU, "torch.rand(20, 30)", "wide"),
        (GELU, "torch.rand(20, 30) + 6", "wide"),
        (GELU, "torch.randn(20, 30)", GIVEN),
        ("return x.t()", "torch.randn(20, 30)", GIVEN),
    ],
)
def test_evidence_is_asked_for_where_least_is_copied(forward, inputs, telling):
    reference = _prepared(forward, inputs)
    assert reference.kind_of(len(reference.plan)) == telling


def test_no_draw_of_that_kind_gives_nothing_but_copies():
    reference = _prepared(GELU, "torch.rand(20, 30) + 6")
    kind = reference.kind_of(len(reference.plan))
    for seed in range(40):
        (x,) = reference.inputs(seed, kind)
        assert float((torch.nn.functional.gelu(x) == x).float().mean()) < 0.9
