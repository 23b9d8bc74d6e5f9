"""Rules by which devices of a pool are taken out of service, probed and taken back.

Contract:

- a device is taken out after `LOST_IN_A_ROW` lost workers without a verdict in between, or after
  one worker that overran its deadline, since each of those costs the batch half an hour;
- a device that is out is probed at once, and again after pauses that double;
- a device is taken back when a probe passes.

Pure: callers pass the time, start the probes and hold the lock.

Does not cover a single device: a pool without another device keeps the one that it has.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelgym.capabilities import DeviceHealth

LOST_IN_A_ROW = 3
"""Lost workers in a row after which a device is taken out of service."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 300.0
_PROBE_S = 120.0  # a probe that takes longer has failed, as far as waiting kernels are concerned


@dataclass(slots=True, eq=False)
class DeviceRecord:
    """Counts of one device, and whether it is in service."""

    device: str
    lost: int = 0
    moved: int = 0
    taken_out: int = 0
    in_service: bool = True
    reason: str = ""
    _in_a_row: int = 0
    _probed_since: float | None = None
    _probe_after: float = 0.0
    _pause_s: float = _FIRST_PAUSE_S

    def give(self) -> None:
        """Note that the device gave a verdict: lost workers in a row count from zero again."""
        self._in_a_row = 0

    def lose(self, why: str, now: float, overran: bool = False) -> None:
        """Count a failed attempt; it may take the device out of service.

        Args:
            why: The failure.
            now: The time, in seconds.
            overran: Whether a worker overran its deadline.
        """
        self.lost += 1
        self._in_a_row += 1
        if self.in_service and (overran or self._in_a_row >= LOST_IN_A_ROW):
            self.in_service, self.reason = False, why
            self.taken_out += 1
            self._probe_after, self._pause_s = now, _FIRST_PAUSE_S

    def forgive(self) -> None:
        """Subtract 1 from the number of lost workers in a row: the kernel was the cause."""
        self._in_a_row = max(0, self._in_a_row - 1)

    def needs_probe(self, now: float) -> bool:
        """Return True if the device is out and a probe is due."""
        return not self.in_service and self._probed_since is None and now >= self._probe_after

    def begin_probe(self, now: float) -> None:
        """Note that a probe runs."""
        self._probed_since = now

    def end_probe(self, failure: str, now: float) -> None:
        """Take the device back into service, or put its next probe off.

        Args:
            failure: Why the probe failed; empty if it passed.
            now: The time, in seconds.
        """
        self._probed_since = None
        if not failure:
            self.in_service, self.reason, self._in_a_row = True, "", 0
            return
        self.reason = failure
        self._probe_after = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def may_return(self, now: float) -> bool:
        """Return True if a probe that runs or is due may take the device back into service."""
        if self._probed_since is not None:
            return now < self._probed_since + _PROBE_S
        return self.needs_probe(now)

    def health(self) -> DeviceHealth:
        """Return the counts as they are now."""
        return DeviceHealth(
            self.device,
            self.in_service,
            lost=self.lost,
            moved=self.moved,
            taken_out=self.taken_out,
            reason=self.reason,
        )
