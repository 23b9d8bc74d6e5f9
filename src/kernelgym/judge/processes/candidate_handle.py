"""The trusted side's handle on one candidate process.

Contract:

- the judge sends a `Candidate` one request at a time, and the candidate answers in JSON;
- everything that the candidate sends is treated as hostile;
- its stdout and stderr are read while waiting for an answer, and kept within bounds;
- closing the handle kills the candidate, whatever happened before.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import select
import signal
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgym.errors import JudgeError
from kernelgym.judge.out_of_memory import our_failure
from kernelgym.judge.processes.scratch import remove_folder
from kernelgym.judge.processes.threads import RunTimes, Threads
from kernelgym.judge.starvation import Starvation
from kernelgym.judge.untrusted import protocol
from kernelgym.rulesets import Limits

if TYPE_CHECKING:
    from kernelgym.judge.processes.zygote_handle import Zygote

_SEND_S = 5.0
_MAX_LATE_READS = 1000
_MAX_BUILDS = 1024  # Triton asks for one assembly for each configuration it tries
_STOP_S = 5.0
_YIELD_CHECK_S = 0.01  # between two checks whether another worker waits for the device


_STREAMS = re.compile(r"\bStream\b|Stream(Create|FromPool|PerThread|Legacy)|[Gg]raph")


def makes_streams(source: str) -> bool:
    """Return True if a source may use several CUDA streams at once.

    A source that hides its streams from this search gets a context in which they take turns.
    """
    return _STREAMS.search(source) is not None


@dataclass(frozen=True, slots=True)
class CandidateKind:
    """Rights and memory with which a candidate process is forked."""

    exec: bool = False
    """Whether the candidate may start programs, in a scratch folder that outlives it. True only for
    compiling ahead, never for a judged run."""
    streams: bool = False
    """Whether the candidate's CUDA streams may run side by side. Making and ending a context that
    allows this takes three times as long."""
    weight_bytes: int = 0
    """Bytes of the pretrained weights that the kernel loads, by which its memory limit is
    raised."""


USUAL = CandidateKind()


_KEPT_OUTPUT_BYTES = 16_384


class BoundedStream:
    """Beginning and end of a candidate's output stream; the middle is dropped."""

    def __init__(self) -> None:
        self.total = 0
        self._head, self._tail = bytearray(), bytearray()

    def add(self, data: bytes) -> None:
        """Append data, and drop what is neither in the beginning nor in the end."""
        self.total += len(data)
        room = _KEPT_OUTPUT_BYTES // 2 - len(self._head)
        self._head += data[:room]
        self._tail += data[max(0, room) :]
        del self._tail[: -_KEPT_OUTPUT_BYTES // 2]

    def text(self) -> str:
        """Return the stream as text: its beginning, the number of bytes left out, and its end."""
        cut = self.total - len(self._head) - len(self._tail)
        middle = f"\n... {cut} bytes cut ...\n" if cut > 0 else ""
        head = self._head.decode("utf-8", "replace")
        return head + middle + self._tail.decode("utf-8", "replace")


class CandidateEnded(Exception):
    """The candidate ended, or broke the protocol, before it answered."""


class CandidateTimedOut(Exception):
    """The candidate did not answer by its deadline."""


class Candidate:
    """One sandboxed process that runs a kernel; use it in a ``with`` block."""

    def __init__(self, keeper: Zygote, number: int, root: Path, limits: Limits) -> None:
        self._keeper, self._id, self._limits = keeper, number, limits
        self._output_bytes = limits.output_bytes
        self.scratch = tempfile.mkdtemp(prefix="run-", dir=root)
        self._channel, self._their_channel = socket.socketpair()
        pairs = [os.pipe() for _ in range(2)]
        self._pipes = {read: BoundedStream() for read, _ in pairs}
        self._ended_streams: list[BoundedStream] = []
        self._their_fds = [write for _, write in pairs]
        self._decoder = protocol.Decoder()
        self._nonce = ""
        self._threads: Threads | None = None
        self._context: bool | None = None
        """Whether the candidate has made its device context; None if none was requested."""
        self._killed = False
        self._builds = 0
        self._deadline = 0.0
        self._starvation = Starvation(limits.run_s)
        self.building_s = 0.0
        """Seconds that the candidate's builds took, all of them together."""
        self.stood_s = 0.0
        """Seconds for which the candidate was halted while other workers timed."""
        self.device_blocked_s = 0.0
        """Seconds of its halts and builds for which a busy device blocked other workers."""
        self.put_off_s = 0.0
        """Seconds by which the deadlines of the candidate's answers were extended."""
        # A candidate that never reads would block the judge for ever once its channel is full.
        wait = struct.pack("ll", int(_SEND_S), 0)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)

    def start(self, control: socket.socket, kind: CandidateKind = USUAL) -> None:
        """Ask the zygote to fork the candidate's process."""
        message = {"op": "spawn", "id": self._id, "scratch": self.scratch, **asdict(kind)}
        protocol.send(control, message, (self._their_channel.fileno(), *self._their_fds))
        self._close_their_ends()

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until the candidate's process is sandboxed; it gets no kernel code before.

        Raises:
            JudgeError: If that fails. The judge or the machine is at fault then.
        """
        if self._threads is not None:
            return
        try:
            self._deadline = time.monotonic() + timeout_s
            message = self._until_message()
        except (CandidateEnded, CandidateTimedOut) as end:
            why = f"{end} {self.output()}".strip()
            raise JudgeError(f"a candidate's sandbox could not be set up: {why}") from None
        if message != {"standby": True}:
            raise JudgeError(
                "the first message of a candidate is not the one that the judge's code sends"
            )
        self._threads = Threads(self._keeper.pid(self._id))

    def ask_for_context(self) -> None:
        """Request that the candidate makes its device context once it is sandboxed."""
        if self._context is None:
            self._context = False
            self.post({"op": "context"})

    @property
    def has_context(self) -> bool:
        """Whether the candidate has reported that its context on the device is made."""
        return self._context is True

    def wait_for_context(self, timeout_s: float) -> None:
        """Wait for the candidate's device context; request it first if necessary.

        Raises:
            DeviceFull: If the device lacks the memory.
            JudgeError: If it fails otherwise. The judge or the machine is at fault then.
        """
        self.ask_for_context()
        if self._context:
            return
        try:
            answer = self.answer(time.monotonic() + timeout_s)
        except (CandidateEnded, CandidateTimedOut) as end:
            why = f"{end} {self.output()}".strip()
            raise our_failure(f"a candidate could not take the device: {why}") from None
        if "error" in answer:
            raise our_failure(f"a candidate could not take the device: {answer['error']}")
        self._context = True

    def ended(self) -> bool:
        """Return True if the candidate's process is known to be gone."""
        return self._keeper.exit_code(self._id) is not None

    def stop(self) -> None:
        """Halt all threads of the candidate; return when they have stopped.

        Raises:
            CandidateEnded: If they do not stop within 5 s. A thread finishes its system call
                before it stops, but only a deliberately made one lasts for seconds.
        """
        if not self.halt(_STOP_S):
            raise CandidateEnded("it did not stand still when it was halted")

    def halt(self, patience_s: float) -> bool:
        """Halt all threads of the candidate; if that takes too long, resume and return False."""
        assert self._threads is not None
        return self._threads.halt(patience_s)

    def resume(self) -> None:
        """Resume a halted candidate.

        Raises:
            CandidateEnded: If it has run since it was halted.
        """
        assert self._threads is not None
        if not self._threads.resume():
            raise CandidateEnded("it ran while it was halted")

    def threads(self) -> int:
        """Return the number of the candidate's threads and children; 0 if it is gone.

        The operating system counts them, not the candidate.
        """
        return 0 if self._threads is None else self._threads.count()

    def run_times(self) -> RunTimes | None:
        """Return the processor times of the candidate's threads so far; None if unknown."""
        return None if self._threads is None else self._threads.run_times()

    def _close_their_ends(self) -> None:
        self._their_channel.close()
        while self._their_fds:
            os.close(self._their_fds.pop())

    def post(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send the candidate a request without waiting for the answer."""
        self._nonce = secrets.token_hex(8)
        # `answer` raises if the candidate is gone.
        with contextlib.suppress(OSError):
            protocol.send(self._channel, {**message, "nonce": self._nonce}, fds)

    def answer(
        self,
        deadline: float,
        build: Callable[[Any], tuple[dict[str, Any], tuple[int, ...]]] | None = None,
        yield_device: Callable[[], float] | None = None,
    ) -> dict[str, Any]:
        """Wait for the candidate's answer to the last request.

        Args:
            deadline: `time.monotonic` at which to give up. Time in which the candidate got no
                processor extends it, and that of a build, except the part for which a busy device
                blocked other workers.
            build: Builds an extension and returns the answer and the descriptors to send with it,
                which are closed here. None if the candidate may not ask for builds.
            yield_device: Function that is called every 10 ms to yield the device to a worker that
                waits for it; returns for how many seconds the candidate was halted, which extend
                the deadline.

        Raises:
            CandidateTimedOut: If there is no answer by the deadline.
            HostTooBusy: If that is because the candidate got no processor.
            CandidateEnded: If the process ends, breaks the protocol or floods its output.
        """
        self._deadline = deadline
        self._starvation.begin(self._keeper.pid(self._id))
        while True:
            message = self._until_message(yield_device)
            if "build" in message and build is not None:
                started = time.monotonic()
                self._builds += 1
                if self._builds > _MAX_BUILDS:
                    raise CandidateEnded(f"it asked for more than {_MAX_BUILDS} builds")
                if self._builds > 1 and self.building_s > self._limits.build_s:
                    raise CandidateEnded(
                        f"its builds took more than {self._limits.build_s:g} s together"
                    )
                stood_before, blocked_before = self.stood_s, self.device_blocked_s
                result, fds = build(message["build"])
                spent = time.monotonic() - started
                self.building_s += spent - (self.stood_s - stood_before)
                self._put_off(spent - (self.device_blocked_s - blocked_before))
                try:
                    with contextlib.suppress(OSError):
                        protocol.send(self._channel, result, fds)
                finally:
                    for fd in fds:
                        os.close(fd)
            elif message.get("nonce") == self._nonce:
                return message
            else:
                raise CandidateEnded("it sent a message without a request")

    def _until_message(self, yield_device: Callable[[], float] | None = None) -> dict[str, Any]:
        late, longest_s = 0, math.inf if yield_device is None else _YIELD_CHECK_S
        while (message := self._next_message(longest_s)) is None:
            self._put_off(self._starvation.more_s())
            if yield_device is not None:
                self._put_off(yield_device())
            late += time.monotonic() > self._deadline
            if late > _MAX_LATE_READS:  # it sends single bytes to delay its timeout for ever
                raise CandidateTimedOut
        return message

    def _put_off(self, seconds: float) -> None:
        self._deadline += max(0.0, seconds)
        self.put_off_s += max(0.0, seconds)

    def _next_message(self, longest_s: float) -> dict[str, Any] | None:
        try:
            message = self._decoder.next()
        except protocol.ProtocolError as error:
            raise CandidateEnded(f"it sent {error}") from None
        if message is not None:
            return message
        # An answer that has arrived in time counts even if it is read after the deadline.
        left = max(0.0, self._deadline - time.monotonic())
        longest_s = min(left, longest_s, self._starvation.due_s)
        ready = _readable([self._channel.fileno(), *self._pipes], longest_s)
        if not ready and not left:
            self._put_off(more_s := self._starvation.more_s(at_once=True))
            if not more_s:
                self._starvation.blame_host("a kernel's process")
                raise CandidateTimedOut
        for fd in [fd for fd in self._pipes if fd in ready]:
            self._drain(fd)
        if self._channel.fileno() in ready:
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
        self._pipes[fd].add(data)
        if sum(stream.total for stream in self._streams()) > self._output_bytes:
            raise CandidateEnded(f"it wrote more than {self._output_bytes} bytes of output")
        if not data:
            # A stream at its end is always readable: every later poll would return at once.
            self._ended_streams.append(self._pipes.pop(fd))
            os.close(fd)

    def _how_it_ended(self) -> str:
        code = self._keeper.exit_code(self._id, 1.0)
        if code is None:
            return "it closed its channel"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"it was killed by {signal.Signals(-code).name}"
        return f"it exited with status {code} before answering"

    def output(self) -> str:
        """Return the candidate's stdout and stderr, each with the middle cut out."""
        for fd in list(self._pipes):
            while _readable([fd], 0):
                data = os.read(fd, 1 << 16)
                self._pipes[fd].add(data)
                if not data or self._pipes[fd].total > self._output_bytes:
                    break
        texts = [stream.text().strip() for stream in self._streams()]
        return "\n".join(filter(None, texts))

    def _streams(self) -> list[BoundedStream]:
        return [*self._ended_streams, *self._pipes.values()]

    def kill(self) -> None:
        """Kill the candidate; keep its scratch folder and output until `discard`.

        Raises:
            JudgeError: If it cannot be killed.
        """
        if not self._killed:
            self._keeper.kill(self._id)
            self._killed = True

    def begin_kill(self) -> None:
        """Have the zygote kill the candidate, without waiting for it.

        Raises:
            JudgeError: If the zygote is gone.
        """
        if not self._killed:
            self._keeper.begin_kill(self._id)

    def discard(self) -> None:
        """Kill the candidate if it still runs, and remove its scratch folder.

        Raises:
            JudgeError: If it cannot be killed.
        """
        try:
            self.kill()
        finally:
            self._close_their_ends()
            self._channel.close()
            for fd in self._pipes:
                os.close(fd)
            self._pipes.clear()
            if self._threads is not None:
                self._threads.close()
                self._threads = None
            remove_folder(self.scratch)

    def __enter__(self) -> Candidate:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def _readable(fds: list[int], timeout_s: float) -> set[int]:
    """Return the file descriptors of candidates that can be read without waiting longer.

    Uses `poll`, since `select` takes no descriptor above 1023.
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(timeout_s * 1e3)}
