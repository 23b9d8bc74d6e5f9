"""Making way: a candidate at work is halted while another kernel is timed.

Contract: a candidate that works for long, because it compiles, builds or hangs, keeps nobody from
timing: when somebody waits for the device lock alone, the candidate is halted, the device lock
    ceded, and the
candidate goes on afterwards, its deadline put off by as long as it stood still. One that does not
stand still when it is told to keeps the device lock. What it has launched on a device goes on
there: `DeviceLock.is_halfway` says that this may be so. While that keeps others from being timed
its deadline is not put off, or one that spins on the device would outlast them all. Nobody knows
whose work it is, so whoever stands still pays; looks are far apart (`Accelerator.quiet`), so that
it is little.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.processes.candidate_handle import Candidate

__all__ = ["Yielding"]

_LEAST_RUN_S = 0.05  # between two halts, so that a stream of timings does not stop it for good
_PATIENCE_S = 0.2


class Yielding:
    """Lets others go first while one candidate works on an answer.

    Args:
        candidate: The candidate.
        device_lock: The device lock that its worker may hold; None where there is nobody to make
            way for.
    """

    def __init__(self, candidate: Candidate, device_lock: DeviceLock | None) -> None:
        self._candidate, self._device_lock = candidate, device_lock
        self._stack = contextlib.ExitStack()
        self._went_on, self._halfway = 0.0, False

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Within it, the candidate works on one answer."""
        with contextlib.ExitStack() as self._stack:
            self._went_on, self._halfway = time.monotonic(), False
            yield

    def yield_device(self) -> float:
        """Let somebody go first if he waits; returns for how many seconds that was."""
        device_lock = self._device_lock
        if device_lock is None or time.monotonic() < self._went_on + _LEAST_RUN_S:
            return 0.0
        if not device_lock.is_wanted():
            return 0.0
        stood_s, device_blocked_s = self._candidate.stood_s, self._candidate.device_blocked_s
        with self.clear():
            pass
        self._went_on = time.monotonic()
        stood_s, device_blocked_s = (
            self._candidate.stood_s - stood_s,
            self._candidate.device_blocked_s - device_blocked_s,
        )
        return max(0.0, stood_s - device_blocked_s)

    @contextlib.contextmanager
    def clear(self) -> Iterator[None]:
        """Cede the device lock while something is done that the candidate waits for.

        Raises:
            CandidateEnded: If the candidate ran although it was halted.
        """
        device_lock = self._device_lock
        if (
            device_lock is None
            or not device_lock.is_shared
            or not self._candidate.halt(_PATIENCE_S)
        ):
            yield
            return
        if not self._halfway:
            self._stack.enter_context(device_lock.halfway())
            self._halfway = True
        begun, device_blocked_s = time.monotonic(), device_lock.device_blocked_s()
        try:
            with device_lock.released():
                yield
                begun = (
                    time.monotonic()
                )  # waiting begins here, but its work is on the device before
        finally:
            self._candidate.stood_s += time.monotonic() - begun
            self._candidate.device_blocked_s += device_lock.device_blocked_s() - device_blocked_s
            self._candidate.resume()
