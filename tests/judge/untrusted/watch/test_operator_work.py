"""What crosses between torch and the rest of Python, as a counter of torch's operators sees it."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelgym.judge.untrusted.watch.operator_work import Counter

ELEMENTS = 100
VALUES = np.ones(ELEMENTS, np.float32)


def counting():
    counter, items, lifted = Counter(), [], []
    counter.on_item = lambda size, way: items.append((size, way))
    counter.on_lift = lifted.append
    return counter, items, lifted


def test_only_copies_from_a_device_to_the_host_cross():
    counter, items, _ = counting()
    with FakeTensorMode():
        there, here = torch.empty(ELEMENTS, device="cuda"), torch.empty(ELEMENTS)
        with counter:
            there.clone()
            here.clone()
            here.copy_(here.clone())
            assert not items
            there.cpu()
            here.copy_(there)
    assert items == [(4 * ELEMENTS, "copies to the host")] * 2


def test_whatever_makes_a_tensor_of_values_is_seen():
    ways = [torch.Tensor, torch.FloatTensor, torch.as_tensor, torch.empty(0).new]
    ways += [torch.empty(0).new_tensor, lambda values: torch.Tensor(values.tolist())]
    for way in ways:
        counter, _, lifted = counting()
        with counter:
            way(VALUES)
        assert lifted == [4 * ELEMENTS]


def test_what_torch_makes_itself_is_not_made_of_values():
    counter, items, lifted = counting()
    with counter:
        torch.zeros(ELEMENTS).add_(1).detach().clone()
        torch.arange(ELEMENTS).to(torch.float32)
    assert not items and not lifted


@pytest.fixture
def own_operators():
    library = torch.library.Library("kernelgym_counted", "DEF")
    library.define("doubled(Tensor x) -> Tensor")
    library.define("zeros(int n) -> Tensor")
    library.impl("doubled", lambda x: torch.softmax(x, 1) * 2.0, "CPU")
    library.impl("zeros", lambda n: torch.ones(n).mul(0.0), "CompositeExplicitAutograd")
    yield torch.ops.kernelgym_counted
    library._destroy()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_what_runs_in_a_kernels_operator_is_counted(own_operators, mode):
    x = torch.ones(3, 4)
    with mode(), Counter() as counter:
        assert torch.equal(own_operators.doubled(x), torch.full((3, 4), 0.5))
        own_operators.zeros(5)
        torch.relu(x)
    assert counter.work.calls == {"_softmax": 1, "mul": 2, "relu": 1}
