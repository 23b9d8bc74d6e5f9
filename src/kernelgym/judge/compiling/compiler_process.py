"""A compiler at work in a sandbox and a folder of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kernelgym.errors import JudgeError
from kernelgym.feedback import cut_middle
from kernelgym.judge.untrusted.sandbox import sandbox
from kernelgym.judge.untrusted.sandbox.sandbox import OWN_FAILURE, Plan

__all__ = ["FAILED", "Ready", "Running", "bounded", "has_failed", "is_transient", "start"]

_LOG_CHARACTERS = 8000
FAILED = "\0failed\0"
"""In front of the log of a command that failed."""
_TOO_LONG = f"{FAILED}the build took longer than "
_SILENT = "the compiler exited with "
_TRANSIENT = (
    _SILENT,
    *("killed", "cannot allocate memory", "virtual memory exhausted", "out of memory"),
    *("no space left on device", "resource temporarily unavailable", "died due to signal"),
)


@dataclass(frozen=True, slots=True)
class Running:
    """A running compiler."""

    process: subprocess.Popen[bytes]
    scratch: Path
    allowed_s: float

    def finish(self, deadline: float) -> str:
        """Wait; return the log, with `FAILED` in front if the command failed.

        Raises:
            JudgeError: If it could not even be started.
        """
        try:
            code = _wait(self.process, max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.end()
            return f"{_TOO_LONG}{self.allowed_s:g} s"
        with (self.scratch / "log").open("rb") as file:
            log = file.read(1 << 20).decode("utf-8", "replace")
        log = log.replace(f"{self.scratch}/", "")
        if code == OWN_FAILURE:
            raise JudgeError(f"the compiler could not be run: {bounded(log)}")
        return log if code == 0 else f"{FAILED}{log or f'{_SILENT}{code}'}"

    def ends_within(self, seconds: float) -> bool:
        """Wait for so long at the most; say whether it has ended."""
        try:
            _wait(self.process, seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        """Kill it with everything it started, if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Ready:
    """A process that stands in its sandbox and becomes a compiler when it is told which.

    To start Python and to raise the walls takes several times what assembling a kernel does. For a
    compiler that starts no processes: how many there may be is counted when the walls are raised.

    Args:
        plan: Its walls. The folder that it may write to is its own, and removed with it.
    """

    def __init__(self, plan: Plan) -> None:
        self.scratch = Path(plan.scratch)
        self._process = _open([], plan, subprocess.PIPE)

    def stands(self) -> bool:
        """Say whether it is still there."""
        return self._process.poll() is None

    def run(self, command: list[str], allowed_s: float) -> Running:
        """Become a compiler, once; `allowed_s` is for its message only."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # how it ended is seen when it is waited for
            with self._process.stdin as told:
                told.write(json.dumps(command).encode() + b"\n")
        return Running(self._process, self.scratch, allowed_s)

    def end(self) -> None:
        """Kill it, if it still runs, and remove its folder."""
        Running(self._process, self.scratch, 0.0).end()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


def start(command: list[str], plan: Plan, allowed_s: float) -> Running:
    """Start a compiler inside the walls of a plan; `allowed_s` is for its message only."""
    return Running(_open(command, plan, subprocess.DEVNULL), Path(plan.scratch), allowed_s)


def _open(command: list[str], plan: Plan, stdin: int) -> subprocess.Popen[bytes]:
    wrapper = [sys.executable, "-I", "-S", "-B", sandbox.__file__]
    scratch = Path(plan.scratch)
    with (scratch / "log").open("wb") as log:
        return subprocess.Popen(
            [*wrapper, json.dumps(dataclasses.asdict(plan)), *command],
            cwd=scratch,
            stdin=stdin,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": plan.scratch}
            | {"LC_ALL": "C.UTF-8", "HOME": plan.scratch},
            start_new_session=True,
        )


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """Wait for a process's end, and return at once when it has come.

    The library's own wait with a limit looks every 50 ms: longer than assembling a kernel takes.

    Raises:
        subprocess.TimeoutExpired: If it still runs after `limit_s`.
    """
    if process.poll() is None:
        fd = os.pidfd_open(process.pid)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if not poll.poll(None if math.isinf(limit_s) else limit_s * 1e3):
                raise subprocess.TimeoutExpired(process.args, limit_s)
        finally:
            os.close(fd)
    return process.wait()


def has_failed(log: str) -> bool:
    """Say whether a log is that of a command that failed."""
    return log.startswith(FAILED)


def is_transient(log: str) -> bool:
    """Say whether a command failed for want of time or memory."""
    lower = log.lower()
    return _TOO_LONG in log or any(sign in lower for sign in _TRANSIENT)


def bounded(log: str) -> str:
    """Return a log as a kernel's author may see it."""
    return cut_middle(log.replace(FAILED, "").strip(), _LOG_CHARACTERS)
