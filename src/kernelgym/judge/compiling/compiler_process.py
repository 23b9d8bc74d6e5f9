"""Runs one compiler process in a sandbox and in a folder of its own."""

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

from kernelgym.build_log import BUILD_TOO_LONG, COMPILER_SILENT, is_transient_build
from kernelgym.errors import JudgeError
from kernelgym.feedback import cut_middle
from kernelgym.judge.environment import COMPILER, AllowList, kept_variables
from kernelgym.judge.starvation import Starvation
from kernelgym.judge.untrusted.sandbox import sandbox
from kernelgym.judge.untrusted.sandbox.sandbox import OWN_FAILURE, SandboxPlan

_LOG_CHARACTERS = 8000
FAILED = "\0failed\0"
"""Prefix of the log of a command that failed."""
_TOO_LONG = f"{FAILED}{BUILD_TOO_LONG}"


class BuildLimit:
    """Time that one build may take, over all of its processes.

    Args:
        allowed_s: Seconds that the build may take; those in which other programs took the
            processors extend them.
    """

    def __init__(self, allowed_s: float) -> None:
        self.allowed_s = allowed_s
        self.starvation = Starvation(allowed_s)
        """Count of the seconds in which the build's processes got no processor."""
        self._deadline = time.monotonic() + allowed_s

    def watch(self, running: RunningCompiler) -> None:
        """Count the time of one more process of the build, from now on."""
        self.starvation.add(running.process.pid)

    def extend(self, seconds: float) -> None:
        """Extend the limit by seconds that were not spent on the build."""
        self._deadline += seconds

    def next_s(self) -> float:
        """Return the seconds to wait before `is_over` is asked again."""
        return max(0.0, min(self._deadline - time.monotonic(), self.starvation.due_s))

    def is_over(self) -> bool:
        """Return True if the build's time is over, after extending it by time that others took."""
        self._deadline += self.starvation.more_s(at_once=time.monotonic() >= self._deadline)
        return time.monotonic() >= self._deadline


@dataclass(frozen=True, slots=True)
class RunningCompiler:
    """A compiler process that runs in a sandbox."""

    process: subprocess.Popen[bytes]
    scratch: Path

    def finish(self, limit: BuildLimit) -> str:
        """Wait until the compiler ends; return its log, behind `FAILED` after a failure.

        Args:
            limit: The limit of the build that it is a part of.

        Raises:
            JudgeError: If the compiler could not be started, or got no processor.
        """
        while not self.ends_within(limit.next_s()):
            if limit.is_over():
                self.end()
                limit.starvation.blame_host("a build")
                return f"{_TOO_LONG}{limit.allowed_s:g} s"
        code = self.process.wait()
        with (self.scratch / "log").open("rb") as file:
            log = file.read(1 << 20).decode("utf-8", "replace")
        log = log.replace(f"{self.scratch}/", "")
        if code == OWN_FAILURE:
            raise JudgeError(f"the compiler could not be run: {bounded(log)}")
        return log if code == 0 else f"{FAILED}{log or f'{COMPILER_SILENT}{code}'}"

    def ends_within(self, seconds: float) -> bool:
        """Wait at most `seconds`; return True if the compiler has ended."""
        try:
            _wait(self.process, seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        """Kill the compiler and everything that it started, if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class ReadyCompiler:
    """A sandboxed process on standby that becomes a compiler on command.

    Starting Python and setting up a sandbox takes several times as long as assembling a kernel.

    Does not suit a compiler that starts other processes: the sandbox fixes the allowed number of
    processes when it is set up.

    Args:
        plan: Sandbox of the process. The writable folder belongs to this process and is removed
            with it.
    """

    def __init__(self, plan: SandboxPlan) -> None:
        self.scratch = Path(plan.scratch)
        self._process = _open([], plan, subprocess.PIPE)

    def stands(self) -> bool:
        """Return True if the process on standby is still alive."""
        return self._process.poll() is None

    def run(self, command: list[str]) -> RunningCompiler:
        """Make the process on standby run a compiler; possible once."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # how it ended is seen when it is waited for
            with self._process.stdin as told:
                told.write(json.dumps(command).encode() + b"\n")
        return RunningCompiler(self._process, self.scratch)

    def end(self) -> None:
        """Kill the process, if it still runs, and remove its folder."""
        RunningCompiler(self._process, self.scratch).end()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


def start(
    command: list[str], plan: SandboxPlan, variables: AllowList = COMPILER
) -> RunningCompiler:
    """Start a sandboxed compiler.

    Args:
        command: The program with its arguments.
        plan: Sandbox of the compiler.
        variables: Environment variables that it keeps.
    """
    process = _open(command, plan, subprocess.DEVNULL, variables)
    return RunningCompiler(process, Path(plan.scratch))


def _open(
    command: list[str], plan: SandboxPlan, stdin: int, variables: AllowList = COMPILER
) -> subprocess.Popen[bytes]:
    wrapper = [sys.executable, "-I", "-S", "-B", sandbox.__file__]
    scratch = Path(plan.scratch)
    with (scratch / "log").open("wb") as log:
        return subprocess.Popen(
            [*wrapper, json.dumps(dataclasses.asdict(plan)), *command],
            cwd=scratch,
            stdin=stdin,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.defpath}
            | kept_variables(variables)
            | {"TMPDIR": plan.scratch, "LC_ALL": "C.UTF-8", "HOME": plan.scratch},
            start_new_session=True,
        )


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """Wait for a process to end; return its exit status at once.

    `subprocess.Popen.wait` with a timeout checks only every 50 ms, which is longer than
    assembling a kernel takes.

    Raises:
        subprocess.TimeoutExpired: If the process still runs after `limit_s`.
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
    """Return True if a log is that of a failed command."""
    return log.startswith(FAILED)


def is_transient(log: str) -> bool:
    """Return True if a command failed for lack of time, memory or another resource."""
    return any(is_transient_build(part) for part in log.split(FAILED))


def bounded(log: str) -> str:
    """Return a log without the prefix, at most 8000 characters long."""
    return cut_middle(log.replace(FAILED, "").strip(), _LOG_CHARACTERS)
