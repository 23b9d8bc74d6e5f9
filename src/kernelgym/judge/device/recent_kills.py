"""Recent kills: the times at which workers of a device last killed a kernel that did not answer.

A kernel that never ends also keeps the driver from making contexts and mapping memory on its
device, for all processes. An honest kernel of another worker may run out of time meanwhile; its
worker looks here and judges it again.

Contract: each worker process writes one small file into a folder that all workers of the device
share.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_S = 0.05


class RecentKills:
    """Times of the kills on one device.

    Args:
        folder: Folder that all workers share.
        owner: Name of the device in file names.
    """

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder, self._prefix = folder, f"{owner}.hung."

    def note(self) -> None:
        """Record that this process has just killed a kernel."""
        path = self._folder / f"{self._prefix}{os.getpid()}"
        path.write_text(repr(time.time()), encoding="ascii")

    def others_since(self, moment: float, patience_s: float = 2.0) -> bool:
        """Return True if another process has killed a kernel since `moment`.

        Args:
            moment: Time of `time.time`.
            patience_s: Seconds to wait for such a kill: the worker of a kernel that was held up may
                time out before the worker of the kernel that blocked the device.
        """
        deadline = time.monotonic() + patience_s
        while not (found := any(noted >= moment for noted in self._others())):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        return found

    def latest(self) -> float:
        """Return the time of the last kill, as `time.time` counts; minus infinity without one."""
        return max(self._noted(), default=-math.inf)

    def _others(self) -> Iterator[float]:
        return self._noted(besides=f"{self._prefix}{os.getpid()}")

    def _noted(self, besides: str = "") -> Iterator[float]:
        for path in self._folder.glob(f"{self._prefix}*"):
            if path.name != besides:
                with contextlib.suppress(OSError, ValueError):  # another process is writing it
                    yield float(path.read_text(encoding="ascii"))
