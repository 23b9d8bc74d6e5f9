"""Every lane's address is checked: within one tensor of the launch, or the launch fails."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.untrusted.triton.bounds_check import _Spans

ELEMENT = 4


def _spans(sizes, gaps):
    """Lay storages out one after the other; return the checker and where each begins and ends."""
    spans, arguments, bounds, at = _Spans(np), [], [], 1 << 12
    for number, (size, gap) in enumerate(zip(sizes, gaps, strict=True)):
        at += gap
        storage = SimpleNamespace(data_ptr=lambda at=at: at, nbytes=lambda size=size: size)
        tensor = SimpleNamespace(data_ptr=storage.data_ptr, untyped_storage=lambda s=storage: s)
        arguments.append((f"x{number}", tensor))
        bounds.append((at, at + size))
        at += size
    spans.set(arguments)
    return spans, bounds


def _pointers(addresses):
    kind = SimpleNamespace(primitive_bitwidth=8 * ELEMENT)
    return SimpleNamespace(data=np.array(addresses, dtype=np.uint64), get_element_ty=lambda: kind)


def _raises(spans, pointers, mask):
    try:
        spans.check("load", pointers, mask)
    except IndexError:
        return True
    return False


@given(st.data())
def test_a_check_fails_if_and_only_if_an_active_lane_lies_outside(data):
    count = data.draw(st.integers(0, 4))
    some = st.lists(st.integers(1, 40), min_size=count, max_size=count)
    none_or_some = st.lists(st.integers(0, 9), min_size=count, max_size=count)
    spans, bounds = _spans(data.draw(some), data.draw(none_or_some))
    ends = [place + by for pair in bounds for place in pair for by in (-5, -4, -3, -1, 0, 1)]
    places = st.one_of(st.sampled_from(ends or [0]), st.integers(4000, 4300), st.just(2**64 - 2))
    addresses = data.draw(st.lists(places, min_size=1, max_size=8))
    mask = data.draw(
        st.none() | st.lists(st.booleans(), min_size=len(addresses), max_size=len(addresses))
    )
    active = [a for a, on in zip(addresses, mask or [True] * len(addresses), strict=True) if on]
    outside = any(
        not any(low <= address and address + ELEMENT <= high for low, high in bounds)
        for address in active
    )
    given_mask = None if mask is None else np.array(mask)
    assert _raises(spans, _pointers(addresses), given_mask) == outside


def test_lanes_of_several_tensors_may_meet_in_one_access():
    spans, ((low, _), (other, _)) = _spans([16, 16], [0, 64])
    spans.check("load", _pointers([[low, other], [low + 12, other + 12]]), None)
    with pytest.raises(IndexError, match=r"1 of 2 active lanes.*past the end of 'x0'"):
        spans.check("load", _pointers([low, low + 32]), None)


def test_one_mask_for_all_lanes():
    spans, ((low, _),) = _spans([16], [0])
    pointers = _pointers([[low, low + 99], [low + 4, low + 99]])
    spans.check("store", pointers, np.array([[True, False]]))
    with pytest.raises(IndexError, match="2 of 2 active lanes"):
        spans.check("store", pointers, np.array([[False, True]]))
