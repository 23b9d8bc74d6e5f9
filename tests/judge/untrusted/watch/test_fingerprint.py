"""Tensors are told apart by their bytes, and by nothing else."""

import contextlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelgym.judge.untrusted.watch.fingerprint import _ROW, _weights, fingerprint

DTYPES = st.sampled_from([torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool])


def random(size, dtype, seed):
    return (torch.rand(size, generator=torch.Generator().manual_seed(seed)) * 100).to(dtype)


@given(st.integers(0, 300), DTYPES, st.integers(0, 99))
def test_equal_bytes_have_equal_fingerprints_wherever_they_lie(size, dtype, seed):
    x = random(size, dtype, seed)
    assert fingerprint(x.clone()) == fingerprint(x)
    if size:
        apart = torch.stack([x, x], dim=1)
        assert fingerprint(apart[:, 1]) == fingerprint(x)


class Own(torch.Tensor):
    pass


@pytest.mark.parametrize("size", [1, 2, 4096])
def test_neither_a_tensors_class_nor_where_it_lies_counts(size):
    x = random(size, torch.float32, 1)
    apart = torch.stack([x, x], dim=1)
    alike = [x.as_subclass(Own), torch.nn.Parameter(x), apart[:, 1], torch.cat([x, x])[size:]]
    alike += [apart[:, 0].as_subclass(Own), x.view(1, size).t()]
    assert {fingerprint(each) for each in alike} == {fingerprint(x)}
    x[size // 2] += 1
    assert fingerprint(alike[0]) == fingerprint(x), "it is the same memory"
    assert fingerprint(apart[:, 1]) != fingerprint(x)


def test_what_has_no_memory_of_its_own_cannot_be_told():
    for tensor in (torch.empty(4, device="meta"), torch.eye(3).to_sparse()):
        with pytest.raises((RuntimeError, NotImplementedError)):
            fingerprint(tensor)


@pytest.mark.parametrize("size", [2, 64, 2 * _ROW])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex64])
def test_the_signs_of_all_elements_count(size, dtype):
    x = torch.arange(1, size + 1).to(dtype)
    assert fingerprint(-x) != fingerprint(x)
    y = torch.stack([x, x]).flatten()
    y[[0, size]] *= -1
    assert fingerprint(y) != fingerprint(torch.stack([x, x]).flatten())
    if dtype.is_complex:
        assert fingerprint((x * 1j).conj().resolve_conj()) != fingerprint(x * 1j)


@given(st.integers(1, 300), st.data())
def test_one_bit_more_is_another_tensor(size, data):
    x = random(size, torch.uint8, 1)
    y = x.clone()
    y[data.draw(st.integers(0, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert fingerprint(x) != fingerprint(y)


@pytest.mark.parametrize(
    "size", [37, 2 * _ROW + 5, pytest.param(70 * _ROW, marks=pytest.mark.slow)]
)
def test_order_counts_within_rows_between_rows_and_between_blocks(size):
    x = torch.arange(size)
    for a, b in {(1, 2), (0, size // 2), (size - 1, 3)}:
        y = x.clone()
        y[a], y[b] = x[b].item(), x[a].item()
        assert fingerprint(x) != fingerprint(y)
    if size > _ROW:
        y = x.clone()
        y[:_ROW], y[_ROW : 2 * _ROW] = x[_ROW : 2 * _ROW], x[:_ROW]
        assert fingerprint(x) != fingerprint(y)


def test_type_and_size_count():
    zeros = torch.zeros(16)
    assert fingerprint(zeros) != fingerprint(zeros.int())
    assert fingerprint(zeros) != fingerprint(torch.zeros(17))
    assert fingerprint(torch.zeros(0)) == fingerprint(torch.zeros(0))


def test_bytes_that_lie_askew_are_told_apart_like_others():
    x = random(9, torch.bfloat16, 1)
    assert fingerprint(x[1:]) == fingerprint(x[1:].clone())


def test_what_is_drawn_for_fingerprints_does_not_depend_on_who_is_asking():
    _weights.cache_clear()
    expected = fingerprint(torch.ones(5))
    _weights.cache_clear()
    with torch.device("meta"), FakeTensorMode(allow_non_fake_inputs=True):
        with contextlib.suppress(RuntimeError, NotImplementedError):
            fingerprint(torch.zeros(5))
    assert fingerprint(torch.ones(5)) == expected
