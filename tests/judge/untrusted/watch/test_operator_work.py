"""What crosses between torch and the rest of Python, as a counter of torch's operators sees it."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelgym.judge.untrusted.watch import operator_work
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
        doubled = own_operators.doubled(x)
        own_operators.zeros(5)
        torch.relu(x)
    assert counter.names.keys() >= {"aten::_softmax", "aten::mul", "aten::relu"}
    assert set(counter.work.bytes) == {"_softmax", "mul", "relu"}
    assert torch.equal(doubled, torch.full((3, 4), 0.5))


class Pair(torch.Tensor):
    """Stands for a pair of matrices; any operator of one is their product."""

    @staticmethod
    def __new__(cls, x, y):
        made = torch.Tensor._make_wrapper_subclass(cls, (1,), dtype=x.dtype)
        made.pair = x, y
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return torch.mm(*args[0].pair)


def test_work_in_the_handler_of_a_class_is_counted():
    x, y = torch.ones(3, 4), torch.ones(4, 5)
    with torch.no_grad(), Counter() as counter:
        torch.relu(Pair(x, y))
    assert counter.work.products == 2 * 3 * 4 * 5 and set(counter.work.bytes) == {"product"}


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.ops.aten._reshape_copy(x.t(), [8, 4]),
        lambda x: torch.ops.aten.lift_fresh_copy(x),
        lambda x: torch.bernoulli(x),
        lambda x: torch.ops.aten.permute_copy(x, [1, 0]),
    ],
)
def test_operator_that_reads_values_into_new_memory_is_not_free(call):
    with Counter() as counter:
        call(torch.ones(4, 8))
    assert sum(counter.work.bytes.values()) >= 2 * 4 * 4 * 8


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.ops.aten._unsafe_view(x, [8, 4]),
        lambda x: torch.ops.aten._reshape_alias(x, [8, 4], [4, 1]),
        lambda x: x.t()[1:].unsqueeze(0),
        lambda x: torch.zeros_like(x).fill_(2.0).uniform_(),
    ],
)
def test_view_or_fill_is_free(call):
    with Counter() as counter:
        call(torch.ones(4, 8))
    assert not counter.work.bytes


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: torch.linspace(a, b, 3),
        lambda a, b: torch.linspace(a, 1, 3),
        lambda a, b: torch.ops.aten.linspace(start=0, end=b, steps=3),
        lambda a, b: torch.linspace(0, b, 3, out=torch.empty(3)),
    ],
)
def test_new_tensor_of_other_tensors_values_is_not_free(call):
    with Counter() as counter:
        call(torch.tensor(1.0), torch.tensor(2.0))
    assert counter.work.bytes["linspace"] >= 4 + 3 * 4


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.linspace(0.0, 1.0, 3, out=x),
        lambda x: torch.full_like(x, 3.0),
        lambda x: torch.ones((4, 8), out=x),
        lambda x: torch.ops.aten.is_same_size(x, x),
    ],
)
def test_tensor_that_gives_a_shape_or_a_place_is_not_read(call):
    with Counter() as counter:
        call(torch.ones(3))
    assert not counter.work.bytes


def held_at_one_place():
    """Return a sparse row in which 64 rows are held at one place; whatever joins them adds."""
    return torch.sparse_coo_tensor(torch.zeros(1, 64, dtype=torch.int64), torch.ones(64, 5), (1, 5))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.select(0, 0),
        lambda x: x.unbind(0),
        lambda x: x.coalesce(),
        lambda x: x.to_dense(),
        lambda x: torch.sparse.sum(x, 0),
    ],
)
def test_what_adds_up_a_sparse_tensor_reads_all_that_it_holds(call):
    held = held_at_one_place()
    with Counter() as counter:
        call(held)
    assert sum(counter.work.bytes.values()) >= 64 * 5 * 4
    assert counter.work.elements >= 64 * 5


def test_parts_of_a_sparse_tensor_are_free():
    held, rows = held_at_one_place(), torch.ones(3, 4).to_sparse_csr()
    with Counter() as counter:
        held.detach()._values()
        held._indices()
        rows.values()
        rows.crow_indices()
        rows.col_indices()
        rows.t().ccol_indices()
    assert set(counter.work.bytes) <= {"t"}


@pytest.mark.parametrize(
    "call",
    [
        lambda z: z.conj().clone(),
        lambda z: z.conj().resolve_conj(),
        lambda z: torch.conj_physical(z),
        lambda z: torch.empty_like(z).conj_physical_(),
        lambda z: torch.empty_like(z).copy_(z.conj()),
        lambda z: torch.empty_like(z).conj().copy_(z),
        lambda z: torch._neg_view(torch.empty_like(z.real)).copy_(z.real),
        lambda z: torch._neg_view(torch.empty_like(z.real)).fill_(z.real[0, 0]),
        lambda z: torch.stack([z.conj(), z]),
    ],
)
def test_copies_that_change_signs_count_as_negations(call):
    with Counter() as counter:
        call(torch.ones(4, 8, dtype=torch.complex64))
    assert counter.work.bytes["neg"] >= 4 * 8 * 4


@pytest.mark.parametrize(
    ("call", "products"),
    [
        (lambda: torch.addbmm(torch.ones(2, 5), torch.ones(7, 2, 3), torch.ones(7, 3, 5)), 420),
        (lambda: torch.baddbmm(torch.ones(1), torch.ones(7, 2, 3), torch.ones(7, 3, 5)), 420),
        (lambda: torch.addmv(torch.ones(2), torch.ones(2, 3), torch.ones(3)), 12),
        (lambda: torch.dot(torch.ones(9), torch.ones(9)), 18),
        (lambda: torch.addmm(torch.ones(2, 5), torch.ones(2, 3), torch.ones(3, 5)), 60),
    ],
)
def test_products_are_counted_with_their_batch(call, products):
    with Counter() as counter:
        call()
    assert counter.work.products == products


def test_operator_that_is_registered_later_is_not_torchs():
    library = torch.library.Library("quantized", "FRAGMENT")
    library.define("kernelgym_pair(Tensor x, Tensor y) -> Tensor")
    library.impl("kernelgym_pair", lambda x, y: torch.mm(x, y), "CPU")
    with torch.no_grad(), Counter() as counter:
        torch.ops.quantized.kernelgym_pair(torch.ones(3, 4), torch.ones(4, 5))
    library._destroy()
    assert counter.work.products == 120 and set(counter.work.bytes) == {"product"}


def test_operator_that_is_implemented_anew_is_counted_by_what_it_does():
    operator_work.remember_implementations()
    library = torch.library.Library("aten", "IMPL")
    library.impl("neg", lambda x: torch.mm(x, x), "CPU")
    with torch.no_grad(), Counter() as counter:
        torch.neg(torch.ones(4, 4))
    library._destroy()
    assert counter.work.products == 128
