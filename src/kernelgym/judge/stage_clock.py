"""Adds up where a verdict's wall time goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import fields

from kernelgym.verdict import Stages

__all__ = ["StageClock"]

_STAGES = tuple(field.name.removesuffix("_s") for field in fields(Stages))


class StageClock:
    """Clock of one worker. A stage within another stops the outer one's clock."""

    def __init__(self) -> None:
        self._spent = dict.fromkeys(_STAGES, 0.0)
        self._running: list[str] = []
        self._since = 0.0

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what happens inside as one stage."""
        self._switch()
        self._running.append(name)
        try:
            yield
        finally:
            self._switch()
            self._running.pop()

    @contextlib.contextmanager
    def waiting(self, resource: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        """Enter a context, and count what entering it takes as ``queue``."""
        with contextlib.ExitStack() as stack:
            with self.stage("queue"):
                stack.enter_context(resource)
            yield

    def _switch(self) -> None:
        now = time.monotonic()
        if self._running:
            self._spent[self._running[-1]] += now - self._since
        self._since = now

    def read(self) -> Stages:
        """Return what was counted since the last reading, and begin anew."""
        spent, self._spent = self._spent, dict.fromkeys(_STAGES, 0.0)
        return Stages(**{f"{name}_s": round(value, 6) for name, value in spent.items()})
