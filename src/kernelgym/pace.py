"""Progress of a job, its rate and its remaining time, as one line a minute."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

EVERY_S = 60.0
"""Seconds between two progress lines."""


def duration(seconds: float) -> str:
    """Return a duration in its largest fitting unit, such as ``5 min``."""
    for limit, unit, name in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{max(0.0, seconds) / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"


@dataclass(slots=True)
class Pace:
    """Steps of a job, and the rate at which they are done."""

    title: str
    """Name of the steps, such as ``episodes``."""
    total: int
    """Number of all steps."""
    done: int = 0
    """Number of steps that are done."""
    clock: Callable[[], float] = time.monotonic
    """Clock, in seconds."""
    _first: int = field(init=False)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._first, self._began = self.done, self.clock()

    def advance(self) -> None:
        """Count one step as done."""
        self.done += 1

    def line(self) -> str:
        """Return a progress line: steps done, rate, and time left.

        Steps that were done before this process began are not in the rate.
        """
        here, passed = self.done - self._first, self.clock() - self._began
        told = f"{self.title} {self.done} of {self.total}"
        if here <= 0 or passed <= 0.0:
            return f"{told}, none in the first {duration(passed)}"
        a_minute = 60.0 * here / passed
        rate = f"{a_minute:.3g} a minute" if a_minute >= 1.0 else f"{60.0 * a_minute:.3g} an hour"
        left = max(0, self.total - self.done) * passed / here
        return f"{told}, {rate}, about {duration(left)} left"


@contextlib.contextmanager
def line_a_minute(line: Callable[[], str], say: Callable[[str], object]) -> Iterator[None]:
    """Report a line every `EVERY_S` seconds during the block, from a thread of its own.

    Args:
        line: Function that returns the line.
        say: Function that is given each line.
    """
    over = threading.Event()

    def work() -> None:
        while not over.wait(EVERY_S):
            say(line())

    thread = threading.Thread(target=work, name="kernelgym-pace", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
