"""Reports a Tinker service's pauses, as a line for the user and an event of the run.

Contract: a pause is told at once when the SDK learns of it, and again after a minute while it
lasts, but not once for each request that it holds up. `Pauses.told` may be called from any thread:
the SDK works in one of its own.

It waits for nothing and ends nothing; a request's own limit does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from kernelgym_train.run.interrupts import say_line

_AGAIN_S = 60.0

_REASONS = {
    "paused_capacity": "the service is short of capacity",
    "paused_rate_limit": "a limit on requests at the same time was reached",
}


class Pauses:
    """Reporter of a Tinker service's pauses.

    Args:
        say: Function that is given a line for each pause; by default it prints to standard error.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self,
        say: Callable[[str], object] = say_line,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.event: Callable[..., object] | None = None
        """Function that writes an event into a run's log: its name, and facts by keyword."""
        self._say, self._clock = say, clock
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], float] = {}

    def told(self, what: str, state: str, reason: str | None = None) -> None:
        """Report a pause, unless the same one was reported within the last minute.

        Args:
            what: Activity that waits, such as "training".
            state: The service's name of the pause, such as "paused_capacity".
            reason: Reason that the service gives; None if it gives none.
        """
        with self._lock:
            now, key = self._clock(), (what, state)
            if now - self._last.get(key, -_AGAIN_S) < _AGAIN_S:
                return
            self._last[key] = now
        why = reason or _REASONS.get(state, state)
        self._say(f"the Tinker service makes {what} wait: {why}")
        if self.event is not None:
            facts: dict[str, Any] = {"what": what, "state": state, "reason": why}
            self.event("paused", **facts)
