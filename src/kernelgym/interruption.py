"""How commands end: their exit codes, and SIGTERM as Ctrl-C.

Slurm, Docker or ``timeout`` may end a command by SIGTERM.

Contract: inside `ended_by_sigterm`, SIGTERM does what Ctrl-C does at that moment, and the block's
exit code after an interrupt is 143 in place of 130. Whatever answers Ctrl-C answers SIGTERM, too:
asyncio, the training's `Interrupts` and the search's `stopped_by_ctrl_c`. SIGTERM that comes again
within a second is the same request: ``timeout`` sends it to the process and to its group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator

from kernelgym.errors import UsageError

CTRL_C_CODE = 128 + signal.SIGINT
"""Exit code of a command that Ctrl-C ended."""
SIGTERM_CODE = 128 + signal.SIGTERM
"""Exit code of a command that SIGTERM ended."""
_SAME_REQUEST_S = 1.0


class InterruptCode:
    """Exit code of a command that an interrupt ends: 130 after Ctrl-C, 143 after SIGTERM."""

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


def exit_code(
    run: Callable[[], int],
    say: Callable[[str], object],
    is_verbose: Callable[[], bool] = lambda: False,
) -> int:
    """Run a command, and return its exit code.

    It is what the command returns, 2 after a `UsageError`, 1 after another failure, 130 or 143
    after an interrupt, and 0 if the reader of standard output has gone.

    Args:
        run: The command.
        say: Function that is given the line about an error.
        is_verbose: Function that returns True if a traceback is printed before that line.
    """
    try:
        with ended_by_sigterm() as interrupted:
            code = _code_of(run, say, is_verbose, interrupted)
            sys.stdout.flush()
            return code
    except BrokenPipeError:
        # Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _code_of(
    run: Callable[[], int],
    say: Callable[[str], object],
    is_verbose: Callable[[], bool],
    interrupted: InterruptCode,
) -> int:
    try:
        return run()
    except SystemExit as done:  # help was printed
        return done.code if isinstance(done.code, int) else 2 * bool(done.code)
    except KeyboardInterrupt as interrupt:
        say(str(interrupt) or "interrupted")
        return interrupted.value
    except BrokenPipeError:
        raise
    except Exception as error:
        if is_verbose():
            traceback.print_exc()
        if isinstance(error, UsageError):
            say(f"error: {error}")
            return 2
        say(f"failed: {type(error).__name__}: {error}")
        return 1
