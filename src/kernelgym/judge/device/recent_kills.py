"""Which workers had to kill a kernel that did not answer, and when: it may have held up others.

Contract: one small file for each worker process in a folder that all workers of a device share. A
kernel that keeps a device busy for ever also keeps contexts from being made and memory from being
mapped there, so that whoever ran out of time meanwhile is judged again.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["RecentKills"]

_POLL_S = 0.05


class RecentKills:
    """What is known of kernels that did not answer on one device.

    Args:
        folder: Folder that all workers share.
        owner: Names the device.
    """

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder, self._prefix = folder, f"{owner}.hung."

    def note(self) -> None:
        """Say that a kernel of this process's was just killed."""
        path = self._folder / f"{self._prefix}{os.getpid()}"
        path.write_text(repr(time.time()), encoding="ascii")

    def others_since(self, moment: float, patience_s: float = 2.0) -> bool:
        """Say whether a kernel of another process's was killed since a moment (`time.time`).

        Args:
            moment: The moment.
            patience_s: How long to wait for it: whoever was held up may notice first.
        """
        deadline = time.monotonic() + patience_s
        while not (found := any(noted >= moment for noted in self._others())):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        return found

    def latest(self) -> float:
        """Return when any kernel was last killed (`time.time`); minus infinity if none was."""
        return max(self._noted(), default=-math.inf)

    def _others(self) -> Iterator[float]:
        return self._noted(besides=f"{self._prefix}{os.getpid()}")

    def _noted(self, besides: str = "") -> Iterator[float]:
        for path in self._folder.glob(f"{self._prefix}*"):
            if path.name != besides:
                with contextlib.suppress(OSError, ValueError):  # half written
                    yield float(path.read_text(encoding="ascii"))
