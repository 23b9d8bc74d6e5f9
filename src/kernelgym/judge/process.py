"""The trusted side's handles on the zygote and on the candidates it forks.

A `Candidate` is asked one thing at a time and answers in JSON; everything it sends is treated as
hostile. Its stdout and stderr are read while waiting and kept within bounds. Whatever happens, it
is killed when its handle is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError
from kernelgym.judge import wire
from kernelgym.judge.sandbox import TIERS
from kernelgym.rulesets import Limits

__all__ = ["Candidate", "CandidateEnded", "CandidateTimedOut", "Zygote", "readable_paths"]

_START_S = 120.0  # importing torch and Triton on a busy machine
_KILL_S = 2.0
_KEPT_OUTPUT_BYTES = 16_384


class CandidateEnded(Exception):
    """The candidate's process ended, or broke the protocol, before it answered."""


class CandidateTimedOut(Exception):
    """The candidate did not answer by its deadline."""


def readable_paths(*extra: str) -> tuple[str, ...]:
    """Files and folders a sandboxed Python with torch needs to read."""
    import torch

    libraries = Path(torch.__file__).parent.parent
    paths = [sys.prefix, sys.base_prefix, str(libraries), *extra]
    paths += ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/usr/share/zoneinfo"]
    paths += ["/etc/ld.so.cache", "/etc/localtime"]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))


class Zygote:
    """A running `zygote.py`, with one candidate forked ahead of need.

    Args:
        interpreted: Whether Triton is imported with its interpreter on.
        limits: What each candidate may use.
        readable: Paths its candidates may read, as from `readable_paths`.
        scratch_root: Folder in which scratch folders are made.
        tier: A tier name, or ``auto`` for the strongest the host allows.

    Raises:
        JudgeError: If it does not start.
    """

    def __init__(
        self,
        interpreted: bool,
        limits: Limits,
        readable: tuple[str, ...],
        scratch_root: Path,
        tier: str = "auto",
    ) -> None:
        self._scratch_root = scratch_root
        self._limits = limits
        self._next_id = 0
        self._exits: dict[int, int] = {}
        self._standby: Candidate | None = None
        self._decoder = wire.Decoder()
        self._errors = tempfile.TemporaryFile()
        self._control, theirs = socket.socketpair()
        plan = {
            "readable": readable,
            "memory_bytes": limits.memory_bytes,
            "file_bytes": limits.file_bytes,
            "open_files": limits.open_files,
            "processes": limits.processes,
        }
        config = json.dumps({"plan": plan, "tier": tier})
        program = str(Path(__file__).with_name("zygote.py"))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-B", program, str(theirs.fileno()), config],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=(theirs.fileno(),),
                env=_clean_environment(interpreted, scratch_root),
                start_new_session=True,
            )
        self.tier = ""

    def wait_ready(self) -> None:
        """Block until it serves; called by `take`, so only needed to start several at once."""
        if self.tier:
            return
        deadline = time.monotonic() + _START_S
        while not self.tier:
            if not self.pump(max(0.0, deadline - time.monotonic())):
                raise JudgeError(f"the zygote did not start: {self._complaint()}")

    def take(self) -> Candidate:
        """Return a fresh candidate, and have the next one forked meanwhile."""
        self.wait_ready()
        taken = self._standby or self._spawn()
        self._standby = self._spawn()
        return taken

    def _spawn(self) -> Candidate:
        self._next_id += 1
        candidate = Candidate(self, self._next_id, self._scratch_root, self._limits.output_bytes)
        try:
            candidate.start(self._control)
        except OSError as error:
            candidate.discard()
            raise JudgeError(f"the zygote is gone: {error}; {self._complaint()}") from error
        return candidate

    def pump(self, timeout_s: float) -> bool:
        """Handle what the zygote says; False if it said nothing in time or is gone."""
        ready, _, _ = select.select([self._control], [], [], timeout_s)
        if not ready:
            return False
        data = self._control.recv(1 << 16)
        if not data:
            return False
        self._decoder.feed(data)
        while (message := self._decoder.next()) is not None:
            if "tier" in message:
                self.tier = str(message["tier"])
            elif "exited" in message:
                self._exits[message["exited"]] = message["code"]
        return True

    def exit_code(self, candidate_id: int, timeout_s: float = 0.0) -> int | None:
        """Exit code of a candidate (negative: signal), or None if it still runs."""
        deadline = time.monotonic() + timeout_s
        while candidate_id not in self._exits:
            if not self.pump(max(0.0, deadline - time.monotonic())):
                return None
        return self._exits[candidate_id]

    def kill(self, candidate_id: int) -> None:
        """Kill a candidate with everything it started; returns when it is gone.

        Raises:
            JudgeError: If it is still there after two seconds.
        """
        if candidate_id not in self._exits:
            try:
                wire.send(self._control, {"op": "kill", "id": candidate_id})
            except OSError as error:
                raise JudgeError("the zygote is gone") from error
            if self.exit_code(candidate_id, _KILL_S) is None:
                raise JudgeError("a candidate could not be killed")
        self._exits.pop(candidate_id, None)

    def _complaint(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        """End the zygote; the kernel takes every candidate down with it."""
        if self._standby is not None:
            self._standby.discard()
            self._standby = None
        self._control.close()
        try:
            self._process.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


class Candidate:
    """One sandboxed process. Made by `Zygote.take`; use it in a ``with`` block."""

    def __init__(self, zygote: Zygote, number: int, root: Path, output_bytes: int) -> None:
        self._zygote, self._id, self._output_bytes = zygote, number, output_bytes
        self.scratch = tempfile.mkdtemp(prefix="run-", dir=root)
        self._channel, self._their_channel = socket.socketpair()
        pairs = [os.pipe() for _ in range(2)]
        self._pipes = {read: _Bounded() for read, _ in pairs}
        self._their_fds = [write for _, write in pairs]
        self._decoder = wire.Decoder()
        self._nonce = ""
        self.building_s = 0.0

    def start(self, control: socket.socket) -> None:
        """Ask the zygote for the process behind this handle."""
        message = {"op": "spawn", "id": self._id, "scratch": self.scratch}
        wire.send(control, message, (self._their_channel.fileno(), *self._their_fds))
        self._close_their_ends()

    def _close_their_ends(self) -> None:
        self._their_channel.close()
        while self._their_fds:
            os.close(self._their_fds.pop())

    def post(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send a request without waiting for its answer."""
        self._nonce = secrets.token_hex(8)
        # A candidate that is gone is noticed when its answer is awaited.
        with contextlib.suppress(OSError):
            wire.send(self._channel, {**message, "nonce": self._nonce}, fds)

    def answer(
        self,
        deadline: float,
        build: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Wait for the answer to the last request.

        Args:
            deadline: `time.monotonic` at which to give up; builds push it back by what they take.
            build: Serves extension builds; None where none is allowed.

        Raises:
            CandidateTimedOut: If there is no answer by the deadline.
            CandidateEnded: If the process ends, breaks the protocol or floods its output.
        """
        while True:
            message = self._next_message(deadline)
            if message is None:
                continue
            if "build" in message and build is not None:
                started = time.monotonic()
                result = build(message["build"])
                spent = time.monotonic() - started
                self.building_s += spent
                deadline += spent
                with contextlib.suppress(OSError):
                    wire.send(self._channel, result)
            elif message.get("nonce") == self._nonce:
                return message
            else:
                raise CandidateEnded("it sent a message nobody asked for")

    def ask(self, message: dict[str, Any], deadline: float, fds: tuple[int, ...] = ()) -> Any:
        """`post`, then `answer`."""
        self.post(message, fds)
        return self.answer(deadline)

    def _next_message(self, deadline: float) -> dict[str, Any] | None:
        try:
            message = self._decoder.next()
        except wire.WireError as error:
            raise CandidateEnded(f"it sent {error}") from None
        if message is not None:
            return message
        left = deadline - time.monotonic()
        if left <= 0:
            raise CandidateTimedOut
        ready, _, _ = select.select([self._channel, *self._pipes], [], [], left)
        for fd in [fd for fd in self._pipes if fd in ready]:
            self._drain(fd)
        if self._channel in ready:
            try:
                data = self._channel.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise CandidateEnded(self._how_it_ended())
            self._decoder.feed(data)
        return None

    def _drain(self, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            self._pipes[fd].closed = True
        self._pipes[fd].add(data)
        if sum(pipe.total for pipe in self._pipes.values()) > self._output_bytes:
            raise CandidateEnded(f"it wrote more than {self._output_bytes} bytes of output")
        if not data:
            # An end of file would make every later select return at once.
            self._pipes.pop(fd).keep(self)
            os.close(fd)

    closed_output: str = ""

    def _how_it_ended(self) -> str:
        code = self._zygote.exit_code(self._id, 1.0)
        if code is None:
            return "it closed its channel"
        if code < 0:
            with contextlib.suppress(ValueError):
                import signal

                return f"it was killed by {signal.Signals(-code).name}"
        return f"it exited with status {code} before answering"

    def output(self) -> str:
        """What it wrote to stdout and stderr, cut in the middle."""
        for fd in list(self._pipes):
            while select.select([fd], [], [], 0)[0]:
                data = os.read(fd, 1 << 16)
                self._pipes[fd].add(data)
                if not data or self._pipes[fd].total > self._output_bytes:
                    break
        texts = [self.closed_output, *(pipe.text() for pipe in self._pipes.values())]
        return "\n".join(text.strip() for text in texts if text.strip())

    def discard(self) -> None:
        """Kill the process and remove what it left. Never raises for a process already gone."""
        try:
            self._zygote.kill(self._id)
        finally:
            self._close_their_ends()
            self._channel.close()
            for fd in self._pipes:
                os.close(fd)
            self._pipes.clear()
            shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self) -> Candidate:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


class _Bounded:
    """The beginning and the end of a stream."""

    def __init__(self) -> None:
        self.total = 0
        self.closed = False
        self._head, self._tail = bytearray(), bytearray()

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = _KEPT_OUTPUT_BYTES // 2 - len(self._head)
        self._head += data[:room]
        self._tail += data[max(0, room) :]
        del self._tail[: -_KEPT_OUTPUT_BYTES // 2]

    def keep(self, candidate: Candidate) -> None:
        candidate.closed_output += self.text()

    def text(self) -> str:
        cut = self.total - len(self._head) - len(self._tail)
        middle = f"\n... {cut} bytes cut ...\n" if cut > 0 else ""
        head = self._head.decode("utf-8", "replace")
        return head + middle + self._tail.decode("utf-8", "replace")


def _clean_environment(interpreted: bool, scratch_root: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "OMP_NUM_THREADS") if name in os.environ}
    return kept | {
        "LANG": "C.UTF-8",
        "HOME": str(scratch_root),
        "TRITON_INTERPRET": "1" if interpreted else "0",
        # Threads that spin after a parallel region would disturb the other side's timing.
        "OMP_WAIT_POLICY": "PASSIVE",
    }


assert TIERS  # the tier names a caller may ask for live beside the sandbox
