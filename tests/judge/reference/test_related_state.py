"""Drawn state that follows from other state, or has a relation among its own values."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.reference.related_state import related_state
from kernelgym.rulesets import RULESETS
from support.programs import problem

AT = torch.arange(100)


class _Holder(nn.Module):
    def __init__(self, **held):
        super().__init__()
        for name, value in held.items():
            setattr(self, name, value if isinstance(value, nn.Module) else nn.Parameter(value))


def teacher():
    layer = nn.Linear(8, 8)
    return _Holder(student=layer, teacher=copy.deepcopy(layer))


def lengths():
    direction = torch.randn(12, 9)
    return _Holder(length=direction.norm(dim=1, keepdim=True), direction=direction)


def transposed():
    weight = torch.randn(12, 9)
    return _Holder(first=weight, second=-2 * weight.t().contiguous())


@pytest.mark.parametrize(
    ("make", "related"),
    [
        (teacher, {"teacher.weight", "teacher.bias"}),
        (lengths, {"length"}),
        (transposed, {"second"}),
        (lambda: _Holder(a=torch.randn(5, 6), b=(whole := torch.randn(9)), c=whole.norm()), {"c"}),
        (lambda: _Holder(w=nn.init.orthogonal_(torch.empty(40, 24))), {"w"}),
        (lambda: _Holder(w=normalize(torch.randn(24, 40), dim=1)), {"w"}),
        (lambda: _Holder(w=normalize(torch.randn(24, 40), dim=1).half()), {"w"}),
        (lambda: _Holder(w=torch.randn(24, 40).softmax(0)), {"w"}),
        (lambda: _Holder(w=torch.randn(1, 40).repeat(24, 1)), {"w"}),
        (lambda: _Holder(w=torch.randn(12, 40).repeat(2, 1)), {"w"}),
        (lambda: _Holder(w=torch.randn(40, 12).repeat_interleave(2, 1)), {"w"}),
        (lambda: _Holder(w=(half := torch.randn(20, 20)) + half.t()), {"w"}),
        (lambda: _Holder(w=torch.block_diag(*torch.randn(4, 8, 8))), {"w"}),
        (lambda: _Holder(w=torch.randn(80, 70).tril()), {"w"}),
        (lambda: _Holder(w=torch.randn(199)[AT[:100, None] - AT[None, :100] + 99]), {"w"}),
        (lambda: _Holder(w=torch.randn(300, 5) @ torch.randn(5, 200)), {"w"}),
        (lambda: _Holder(w=torch.randn(90, 90) @ torch.randn(90, 90).cumsum(0)), {"w"}),
        (lambda: _Holder(w=torch.randn(80, 300).cumsum(1)), {"w"}),
        (lambda: _Holder(w=torch.randn(64)[(AT[:64, None] + AT[None, :64]) % 64]), {"w"}),
        (lambda: _Holder(a=nn.Embedding(90, 64), m=nn.MultiheadAttention(64, 4)), set()),
        (lambda: _Holder(a=nn.Conv2d(64, 64, 3, groups=64), g=nn.GRU(40, 48)), set()),
        (lambda: _Holder(a=nn.init.trunc_normal_(torch.empty(96, 192)).half()), set()),
        (lambda: _Holder(w=torch.randn(200, 200), v=nn.Linear(400, 8, dtype=torch.half)), set()),
        (lambda: _Holder(w=torch.randn(300, 200).bfloat16(), v=nn.Conv2d(3, 64, 3)), set()),
        (lambda: _Holder(w=torch.randn(20, 20), b=torch.randn(20), s=torch.randn(())), set()),
        (lambda: _Holder(w=torch.randn(64, 64).bfloat16(), v=torch.randn(64).half()), set()),
        (lambda: _Holder(fc=nn.LSTM(16, 16, 2), e=nn.Embedding(20, 16, padding_idx=0)), set()),
        (lambda: _Holder(w=torch.ones(20), m=torch.eye(4)), set()),
        (lambda: _Holder(w=torch.randn(24, 40) * (torch.arange(24) % 3 == 0)[:, None]), set()),
    ],
)
def test_state_is_related_if_a_relation_holds_under_every_seed(make, related):
    torch.manual_seed(11)
    assert set(related_state(make(), make())) == related


def test_related_state_is_replaced_and_free_state_is_not():
    init = "self.a = nn.Linear(30, 30)\nself.b = nn.Linear(30, 30)\n"
    init += "self.b.load_state_dict(self.a.state_dict())"
    case = problem("return self.a(x) * self.b(x)", "torch.randn(20, 30)", init=init)
    reference = Reference(case, RULESETS["strict"], Seeds("5eed"))
    reference.prepare()
    assert set(reference.state) == {"b.weight", "b.bias"}
    assert not torch.equal(reference.model.a.weight, reference.model.b.weight)
