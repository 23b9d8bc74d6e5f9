"""SIGTERM as Ctrl-C, for commands that Slurm, Docker or ``timeout`` may end.

Contract: inside `ended_by_sigterm`, SIGTERM does what Ctrl-C does at that moment, and the block's
exit code after an interrupt is 143 in place of 130. Whatever answers Ctrl-C answers SIGTERM, too:
asyncio, the training's `Interrupts` and the search's `stopped_by_ctrl_c`. SIGTERM that comes again
within a second is the same request: ``timeout`` sends it to the process and to its group.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

CTRL_C_CODE = 128 + signal.SIGINT
"""Exit code of a command that Ctrl-C ended."""
SIGTERM_CODE = 128 + signal.SIGTERM
"""Exit code of a command that SIGTERM ended."""
_SAME_REQUEST_S = 1.0


class InterruptCode:
    """Exit code of a command that is interrupted now."""

    def __init__(self) -> None:
        self.value: int = CTRL_C_CODE
        """130 for Ctrl-C, 143 once SIGTERM has come."""


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[InterruptCode]:
    """Let SIGTERM act as Ctrl-C during the block; yield the exit code of an interrupt.

    A shell script starts its background commands with Ctrl-C ignored. Such a command takes Ctrl-C
    again, since it could not be ended in order otherwise. Outside the main thread, which signals
    do not reach, this does nothing.
    """
    code = InterruptCode()
    if threading.current_thread() is not threading.main_thread():
        yield code
        return
    last = -_SAME_REQUEST_S

    def terminate(*_: object) -> None:
        nonlocal last
        last, before = time.monotonic(), last
        if last - before >= _SAME_REQUEST_S:
            code.value = SIGTERM_CODE
            signal.raise_signal(signal.SIGINT)

    ctrl_c = signal.getsignal(signal.SIGINT)
    if ctrl_c in (signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sigterm = signal.signal(signal.SIGTERM, terminate)
    try:
        yield code
    finally:
        signal.signal(signal.SIGTERM, sigterm)
        signal.signal(signal.SIGINT, ctrl_c)
