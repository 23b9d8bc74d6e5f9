"""Making way: a candidate at work is halted while another kernel is timed.

Contract: a candidate that works for long, because it compiles, builds or hangs, keeps nobody from
timing: when somebody waits for the lease alone, the candidate is halted, the lease ceded, and the
candidate goes on afterwards, its deadline put off by as long as it stood still. One that does not
stand still when it is told to keeps the lease. What it has launched on a device goes on there:
`Lease.is_halfway` says that this may be so. While that keeps others from being timed its deadline
is not put off, or one that spins on the device would outlast them all. Nobody knows whose work it
is, so whoever stands still pays; looks are far apart (`Accelerator.quiet`), so that it is little.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from kernelgym.judge.device.lock import Lease
from kernelgym.judge.processes.candidate_handle import Candidate

__all__ = ["Way"]

_LEAST_RUN_S = 0.05  # between two halts, so that a stream of timings does not stop it for good
_PATIENCE_S = 0.2


class Way:
    """Lets others go first while one candidate works on an answer.

    Args:
        candidate: The candidate.
        lease: The lease that its worker may hold; None where there is nobody to make way for.
    """

    def __init__(self, candidate: Candidate, lease: Lease | None) -> None:
        self._candidate, self._lease = candidate, lease
        self._stack = contextlib.ExitStack()
        self._went_on, self._halfway = 0.0, False

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Within it, the candidate works on one answer."""
        with contextlib.ExitStack() as self._stack:
            self._went_on, self._halfway = time.monotonic(), False
            yield

    def make(self) -> float:
        """Let somebody go first if he waits; returns for how many seconds that was."""
        lease = self._lease
        if lease is None or time.monotonic() < self._went_on + _LEAST_RUN_S:
            return 0.0
        if not lease.is_wanted():
            return 0.0
        stood_s, in_vain_s = self._candidate.stood_s, self._candidate.in_vain_s
        with self.clear():
            pass
        self._went_on = time.monotonic()
        stood_s, in_vain_s = (
            self._candidate.stood_s - stood_s,
            self._candidate.in_vain_s - in_vain_s,
        )
        return max(0.0, stood_s - in_vain_s)

    @contextlib.contextmanager
    def clear(self) -> Iterator[None]:
        """Cede the lease while something is done that the candidate waits for.

        Raises:
            CandidateEnded: If the candidate ran although it was halted.
        """
        lease = self._lease
        if lease is None or not lease.is_shared or not self._candidate.halt(_PATIENCE_S):
            yield
            return
        if not self._halfway:
            self._stack.enter_context(lease.halfway())
            self._halfway = True
        begun, in_vain_s = time.monotonic(), lease.in_vain_s()
        try:
            with lease.ceded():
                yield
                begun = (
                    time.monotonic()
                )  # waiting begins here, but its work is on the device before
        finally:
            self._candidate.stood_s += time.monotonic() - begun
            self._candidate.in_vain_s += lease.in_vain_s() - in_vain_s
            self._candidate.resume()
