"""An event loop whose clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

_FOR_THREADS_S = 0.005
"""How long other threads, such as a judge's, are waited for before the clock jumps."""


class _Jumps(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    """A selector whose timeouts pass at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready; move the clock if nothing is."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(_FOR_THREADS_S)
        if not found:
            self.now += timeout
        return found


class FakeClockLoop(asyncio.SelectorEventLoop):
    """An event loop in which an hour takes milliseconds."""

    def __init__(self) -> None:
        self._jumps = _Jumps()
        super().__init__(self._jumps)

    def time(self) -> float:
        """Return seconds since the loop was made."""
        return self._jumps.now


def use(monkeypatch: Any) -> None:
    """Let `asyncio.run` use such loops until the patch is undone."""
    monkeypatch.setattr("asyncio.events.new_event_loop", FakeClockLoop)
