"""Time two correct kernels in turns, beside one process of the reference.

Contract: each pair of windows is one of `kernelgym.judge.timing.windows`, on values that both
kernels get in the same order, its secret call verified; what pairs come to, and when there are
enough, is as for one kernel. The kernel that goes first changes from pair to pair, so that a drift
of the machine favours neither. On the CPU only, and for references without state: one process of
the reference cannot be in two kernels' states.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kernelgym.judge.session.session import Rejected
from kernelgym.judge.timing.measure import MIN_PAIRS, Measurement, Stopwatch
from kernelgym.judge.timing.speedup import Pair

__all__ = ["SideRejected", "blamed", "measured_in_turns"]


class SideRejected(Exception):
    """One of two kernels failed."""

    def __init__(self, side: int, end: Rejected) -> None:
        super().__init__(str(end))
        self.side, self.end = side, end


@contextmanager
def blamed(side: int) -> Iterator[None]:
    """Have a failure in the block say whose it is.

    Raises:
        SideRejected: In place of `Rejected`.
    """
    try:
        yield
    except Rejected as end:
        raise SideRejected(side, end) from None


def measured_in_turns(
    first: Stopwatch, second: Stopwatch, budget_s: float
) -> tuple[Measurement, Measurement]:
    """Time two kernels in turns until both have enough pairs.

    Args:
        first: Times the kernel that begins.
        second: Times the other, beside the same process of the reference.
        budget_s: Seconds after which each has the fewest pairs at most.

    Raises:
        SideRejected: If a kernel fails, or an output differs.
        Untimed: If the problem cannot be timed.
        JudgeError: If the reference's process fails.
    """
    watches = (first, second)
    for side, watch in enumerate(watches):
        with blamed(side):
            watch.begin()
    if first.calls > second.calls:  # the reference has room for as many calls as were laid out last
        with blamed(0):
            first.lay_out_again()
    deadline = time.monotonic() + budget_s
    pairs: tuple[list[Pair], list[Pair]] = ([], [])
    while not all(watch.has_enough(run) for watch, run in zip(watches, pairs, strict=True)):
        if time.monotonic() > deadline and len(pairs[0]) >= MIN_PAIRS:
            break
        begins = len(pairs[0]) % 2
        for side in (begins, 1 - begins):
            with blamed(side):
                pairs[side].append(watches[side].pair())
    return first.measurement(pairs[0]), second.measurement(pairs[1])
