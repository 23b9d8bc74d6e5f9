"""Starts processes that run the judge's own modules, and talks to them over a socket."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from kernelgym.types import Kernel, Problem


class TrustedProcess:
    """A running Python process of the judge's code, with a socket and a file for its errors.

    Args:
        program: Python's arguments; the socket's descriptor is put after them.
        environment: The process's environment variables.
        after: Further arguments.
        pass_fds: Further descriptors that the process inherits.
    """

    def __init__(
        self,
        program: Sequence[str],
        environment: Mapping[str, str],
        after: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.socket, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()
        with theirs:
            self.popen = subprocess.Popen(
                [sys.executable, *program, str(theirs.fileno()), *after],
                pass_fds=(theirs.fileno(), *pass_fds),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=environment,
                start_new_session=True,
            )

    def complaint(self) -> str:
        """Return the last line that the process wrote as an error, or how it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(1.0)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:500] if lines else f"it exited with {self.popen.returncode}"

    def hang_up(self) -> None:
        """Close the socket; a thread that waits for an answer is woken."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def end(self, patience_s: float = 0.0) -> None:
        """Wait until the process has ended, and kill it if that takes longer than `patience_s`."""
        try:
            self.popen.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self._errors.close()


def fields_of(noun: Problem | Kernel) -> dict[str, Any]:
    """Return the fields from which the receiver of a job makes the problem or kernel again."""
    return {f.name: getattr(noun, f.name) for f in dataclasses.fields(noun) if f.init}
