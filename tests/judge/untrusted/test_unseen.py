"""What the judge does in a candidate's process out of reach of modes and replaced functions."""

import random

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kernelgym.judge.untrusted import outputs, unseen


class Swallows(TorchDispatchMode):
    """Leaves out every operator that writes."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return args[0] if func._schema.is_mutable else func(*args, **(kwargs or {}))


class SwallowsFunctions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return args[0] if func is torch.Tensor.fill_ else func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Swallows, SwallowsFunctions])
def test_mode_that_leaves_writes_out_keeps_no_output_from_being_overwritten(mode):
    kept, lost = torch.zeros(3), torch.zeros(3)
    with mode():
        outputs.overwrite(kept, [True], unseen.below)
        with unseen.Unseen():
            outputs.overwrite(lost, [True], unseen.below)
    assert not kept.isnan().any() and lost.isnan().all()


def test_modes_see_operators_again_afterwards():
    seen = torch.zeros(3)
    with Swallows():
        with unseen.Unseen():
            pass
        seen.add_(1)
    assert not seen.any()


def test_secret_numbers_stay_secret_where_randomness_is_replaced(monkeypatch):
    monkeypatch.setattr(random, "_urandom", bytes)
    monkeypatch.setattr("os.urandom", bytes)
    drawn = {unseen.below(1000) for _ in range(50)}
    assert len(drawn) > 25 and all(0 <= number < 1000 for number in drawn)
