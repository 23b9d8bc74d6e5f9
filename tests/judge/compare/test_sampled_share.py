"""The share of wrong elements counts those that take work."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.compare.sampled_share import wrong_share

RIGHT = torch.linspace(1.0, 2.0, 64 * 256).reshape(64, 256)


@given(st.integers(0, 64))
def test_share_is_that_of_wrong_rows(rows):
    out = RIGHT.clone()
    out[:rows] = float("nan")
    assert wrong_share([out], [RIGHT], []) == rows / 64


def test_large_outputs_are_sampled():
    right = torch.rand(1 << 20) + 0.5
    out = right.clone()
    out[: 1 << 18] += 1.0
    assert abs(wrong_share([out], [right], []) - 0.25) < 0.02


def test_copies_of_inputs_and_zeros_do_not_count():
    row = torch.cat([RIGHT[:2], torch.zeros(62, 256)])
    cache = RIGHT.clone()
    updated = cache.clone()
    updated[:2] = 5.0
    assert wrong_share([torch.full_like(row, 3.0)], [row], []) == 1.0
    assert wrong_share([cache], [updated], [cache]) == 1.0
    assert wrong_share([cache], [updated], []) == 2 / 64


def test_rounding_is_no_difference_and_strides_do_not_matter():
    assert wrong_share([RIGHT * (1 + 1e-6)], [RIGHT], []) == 0.0
    turned = RIGHT.t().contiguous().t()
    assert wrong_share([turned], [RIGHT], [turned[:1]]) == 0.0


def test_most_changed_output_counts_and_what_cannot_be_told_is_one():
    assert wrong_share([RIGHT, -RIGHT], [RIGHT, RIGHT], []) == 1.0
    few, whole = torch.ones(20), torch.arange(600)
    assert wrong_share([few], [few], []) == wrong_share([whole], [whole], []) == 1.0
    assert wrong_share([], [], []) == wrong_share([RIGHT], [RIGHT, RIGHT], []) == 1.0
