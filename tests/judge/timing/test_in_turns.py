"""How two kernels are timed in turns, with processes that are made up."""

import pytest
import torch

from kernelgym.judge.session.live_run import LiveRun
from kernelgym.judge.session.session import Rejected
from kernelgym.judge.timing.in_turns import SideRejected, measured_in_turns
from kernelgym.judge.timing.measure import Stopwatch
from kernelgym.types import Status
from support.made_up_sides import Reference, Side

CPU = torch.device("cpu")


class Noted(Side):
    """A side that notes in a shared list when it was timed."""

    def __init__(self, call_ms, name, order):
        super().__init__(call_ms, device=CPU)
        self.name, self.order = name, order

    def timed_run(self, batches, *arguments):
        if batches:
            self.order.append(self.name)
        return super().timed_run(batches, *arguments)


def in_turns(first_ms, second_ms, reference_ms=4.0):
    order, reference = [], Reference()
    sides = [Noted(first_ms, "first", order), Noted(second_ms, "second", order)]
    baseline = Noted(reference_ms, "", order)
    watches = [Stopwatch(LiveRun(None, reference, side), baseline) for side in sides]
    return sides, watches, order


@pytest.mark.parametrize(("first_ms", "second_ms"), [(0.05, 2.0), (2.0, 0.05), (1.0, 1.0)])
def test_both_kernels_are_timed_beside_one_reference(first_ms, second_ms):
    """Sides refuse more calls a window than were laid out."""
    _, watches, _ = in_turns(first_ms, second_ms)
    first, second = measured_in_turns(*watches, 60.0)
    assert first.timing.speedup == pytest.approx(4.0 / first_ms)
    assert second.timing.speedup == pytest.approx(4.0 / second_ms)


def test_who_goes_first_alternates():
    _, watches, order = in_turns(1.0, 1.0)
    first, second = measured_in_turns(*watches, 60.0)
    samples = first.timing.samples
    assert samples == second.timing.samples >= 3
    begun = [name for name in order if name][-2 * samples :]
    turns = [begun[at : at + 2] for at in range(0, 2 * samples, 2)]
    assert turns[::2] == [["first", "second"]] * len(turns[::2])
    assert turns[1::2] == [["second", "first"]] * len(turns[1::2])


def test_time_that_is_up_leaves_the_fewest_pairs():
    _, watches, _ = in_turns(1.0, 1.0)
    for watch in watches:
        watch.has_enough = lambda pairs: False
    first, second = measured_in_turns(*watches, 0.0)
    assert first.timing.samples == second.timing.samples == 3


@pytest.mark.parametrize("side", [0, 1])
def test_a_failure_is_that_of_the_side(side):
    sides, watches, _ = in_turns(1.0, 1.0)
    sides[side].refuses = Rejected(Status.WRONG, "differs")
    with pytest.raises(SideRejected) as failed:
        measured_in_turns(*watches, 60.0)
    assert (failed.value.side, failed.value.end.status) == (side, Status.WRONG)


def test_slowing_the_reference_gains_nothing():
    """The reference alone is timed once, for both."""
    _, watches, _ = in_turns(1.0, 2.0)
    found = measured_in_turns(*watches, 60.0)
    cleaned = [watch.beside(measured, 2.0) for watch, measured in zip(watches, found, strict=True)]
    assert [each.timing.speedup for each in cleaned] == pytest.approx([2.0, 1.0])
