"""Yield the device: halt a candidate while another worker times a kernel.

Contract:
- A candidate that works for long, because it compiles, builds or hangs, does not delay timing. When
  another worker waits for the device lock alone, this worker halts its candidate, releases the
  lock, and resumes the candidate once it has the lock back.
- The candidate's deadline moves by the time for which it was halted, except for the time in which
  the device stayed busy and so blocked the timing: otherwise a kernel that spins on the device
  would outlast all others. No worker can tell whose work keeps the device busy, so every halted
  candidate pays for that time; it is little, since `Accelerator.quiet` looks at long intervals.
- A candidate that does not halt when told keeps its worker's share of the lock.

Not covered: work that the candidate has already launched continues on the device.
`DeviceLock.is_halfway` reports that there may be such work.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.processes.candidate_handle import Candidate

_LEAST_RUN_S = 0.05  # run time between two halts: back-to-back timings would starve the candidate
_PATIENCE_S = 0.2


class Yielding:
    """Yields the device to other workers while one candidate works.

    Args:
        candidate: The candidate.
        device_lock: The device lock that its worker may hold; None if no other worker needs it.
    """

    def __init__(self, candidate: Candidate, device_lock: DeviceLock | None) -> None:
        self._candidate, self._device_lock = candidate, device_lock
        self._stack = contextlib.ExitStack()
        self._went_on, self._halfway = 0.0, False

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Return a context in which the candidate works on one answer."""
        with contextlib.ExitStack() as self._stack:
            self._went_on, self._halfway = time.monotonic(), False
            yield

    def yield_device(self) -> float:
        """Yield the device if a worker waits; return the halt's seconds.

        Returns:
            Seconds for which the candidate was halted, without those in which the device was busy.
        """
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
        """Release the device lock during a step that the candidate waits for.

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
                # The halt counts from here, when the step is done; time in which the device was
                # busy counts from before it.
                begun = time.monotonic()
        finally:
            self._candidate.stood_s += time.monotonic() - begun
            self._candidate.device_blocked_s += device_lock.device_blocked_s() - device_blocked_s
            self._candidate.resume()
