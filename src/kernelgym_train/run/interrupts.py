"""Handles Ctrl-C during a training run.

SIGTERM comes as Ctrl-C to a command of `kernelgym-train` (`kernelgym.interruption`).

Contract:

- Ctrl-C is answered at once, by a thread: what the run is doing, what happens next, where it lies.
  The main thread may be inside a library for seconds, where Python runs no signal handler;
- while steps are taken, the first Ctrl-C sets an event, and the step is finished and saved. At any
  other time, and the second time, `KeyboardInterrupt` is raised as ever;
- a run that has not ended five seconds after that is ended by the thread. Its folder is as a kill
  leaves it, and the judge's processes end with this one.

Independent of the backend. Outside the main thread, which signals do not reach, it does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Self

from kernelgym.interruption import CTRL_C_CODE, SIGTERM_CODE
from kernelgym.records.run_logs import tell

_PATIENCE_S = 5.0
_LOOK_S = 0.5


class Activity:
    """Current activity of a training run, in words that follow "while"."""

    def __init__(self) -> None:
        self.now = "starting"

    @contextlib.contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Set the activity to `what` during the block, and back to the earlier one after it.

        After an interrupt `what` stays: the thread that answers may read it a moment later.
        """
        before, self.now = self.now, what
        try:
            yield
        except Exception:
            self.now = before
            raise
        self.now = before


class Interrupts:
    """Context manager that handles Ctrl-C in a training run, as the module's contract says.

    Args:
        activity: Present activity of the run.
        folder: Folder of the run, if it has a folder yet; may be set later.
        say: Function that is given each answer, one line; by default it goes to standard error.
    """

    def __init__(
        self,
        activity: Activity,
        folder: Path | None = None,
        say: Callable[[str], object] | None = None,
    ) -> None:
        self.activity, self.folder = activity, folder
        self.say = say_line if say is None else say
        self._asked = threading.Event()
        self._finishes = False
        self._left = threading.Event()
        self._leaving = contextlib.ExitStack()

    @contextlib.contextmanager
    def finishing_steps(self) -> Iterator[threading.Event]:
        """Yield the event that the first Ctrl-C sets during the block."""
        self._finishes = True
        try:
            yield self._asked
        finally:
            self._finishes = False

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        thread = threading.Thread(target=self._answer, args=(reader,), daemon=True)
        leaving = self._leaving.callback  # the last one is called first
        leaving(os.close, reader)
        leaving(thread.join)
        leaving(os.close, writer)  # ends the thread's reading
        leaving(self._left.set)
        leaving(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, self._handle))
        leaving(signal.set_wakeup_fd, signal.set_wakeup_fd(writer, warn_on_full_buffer=False))
        thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._finishes and not self._asked.is_set():
            self._asked.set()
            return
        raise KeyboardInterrupt

    def _answer(self, reader: int) -> None:
        """Print a line for each Ctrl-C; runs in its own thread."""
        waits, code = False, CTRL_C_CODE
        while data := os.read(reader, 1):
            if data[0] == signal.SIGTERM:
                code = SIGTERM_CODE  # Ctrl-C's number follows
            if data[0] != signal.SIGINT:
                continue
            waits = self._finishes and not waits
            self.say(self._line(waits))
            if not waits and not self._left.wait(_PATIENCE_S):
                os._exit(code)

    def _line(self, waits: bool) -> str:
        then = "stopping now"
        if waits:
            then = "this step is finished and saved, then the run stops; Ctrl-C again stops at once"
        where = f"; the run is in {self.folder}" if self.folder is not None else ""
        return f"interrupted while {self.activity.now}: {then}{where}"


async def finish_within(
    work: Coroutine[Any, Any, None], interrupted: threading.Event, limit_s: float
) -> bool:
    """Await `work`, within a limit of time after an interrupt; return False if it was cancelled.

    Args:
        work: Coroutine that is awaited; its exceptions pass.
        interrupted: Event that an interrupt sets.
        limit_s: Seconds that the work may take from then on; then it is cancelled.
    """
    loop = asyncio.get_running_loop()
    task, deadline = loop.create_task(work), None
    try:
        while not task.done():
            if deadline is None and interrupted.is_set():
                deadline = loop.time() + limit_s
            left = _LOOK_S if deadline is None else deadline - loop.time()
            if left <= 0.0:
                return False
            await asyncio.wait({task}, timeout=left)
        task.result()
        return True
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


def say_line(line: str) -> None:
    """Print a line about the run to standard error, and log it."""
    tell(line, "kernelgym-train: ")
