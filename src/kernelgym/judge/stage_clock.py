"""Measures how much of a verdict's wall time each stage takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import fields

from kernelgym.verdict import Stages

_STAGES = tuple(field.name.removesuffix("_s") for field in fields(Stages))


class StageClock:
    """Clock of one worker's stages; while an inner stage runs, the outer one is paused."""

    def __init__(self) -> None:
        self._spent = dict.fromkeys(_STAGES, 0.0)
        self._running: list[str] = []
        self._since = 0.0

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the wall time of the enclosed block as that of stage `name`."""
        self._switch()
        self._running.append(name)
        try:
            yield
        finally:
            self._switch()
            self._running.pop()

    @contextlib.contextmanager
    def waiting(self, resource: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        """Enter a context, and count the wait for it as stage ``queue``."""
        with contextlib.ExitStack() as stack:
            with self.stage("queue"):
                stack.enter_context(resource)
            yield

    def _switch(self) -> None:
        now = time.monotonic()
        if self._running:
            self._spent[self._running[-1]] += now - self._since
        self._since = now

    def read(self, kernels: int = 1) -> Stages:
        """Return the seconds of each stage since the last call, and reset them.

        Args:
            kernels: Number of kernels that were judged together; each has an equal share.
        """
        spent, self._spent = self._spent, dict.fromkeys(_STAGES, 0.0)
        return Stages(**{f"{name}_s": round(value / kernels, 6) for name, value in spent.items()})
