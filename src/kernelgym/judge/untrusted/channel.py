"""The candidate's end of its channel: one stream of messages for several threads.

The process's main thread waits for requests while any thread of the kernel may wait for a build.
Whoever waits first reads; what he reads for the other is put aside, and the other is woken. No
thread is started for that: the trusted side counts them. While nobody else waits, a message costs
no system call beside its own.

Loaded by path in the untrusted process: standard library only.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from types import ModuleType
from typing import Any

__all__ = ["Inbox"]

_Message = tuple[dict[str, Any], list[int]]


class Inbox:
    """Messages from the trusted side, sorted: requests have an ``op``, answers to builds do not.

    Args:
        channel: The socket they come from.
        wire: The module that frames them.
    """

    def __init__(self, channel: socket.socket, protocol: ModuleType) -> None:
        self._channel, self._protocol = channel, protocol
        self._decoder = protocol.Decoder()
        self._sending, self._building = threading.Lock(), threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        self._has_reader = False
        """Whether a thread reads from the channel."""
        self._requests: deque[_Message] = deque()
        self._answers: deque[_Message] = deque()

    def request(self) -> _Message:
        """Wait for the next request, and the descriptors that came with it.

        Raises:
            EOFError: If the other side closed the channel.
        """
        return self._next(self._requests)

    def build(self, arguments: dict[str, Any]) -> _Message:
        """Have something built; return the answer, and the descriptors that came with it.

        Raises:
            EOFError: If the other side closed the channel.
        """
        with self._building:  # answers do not say which build they belong to
            self.send({"build": arguments})
            return self._next(self._answers)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; those of other threads come before it or after it."""
        with self._sending:
            self._protocol.send(self._channel, message)

    def _next(self, mine: deque[_Message]) -> _Message:
        while True:
            with self._changed:
                while self._has_reader and not mine:
                    self._changed.wait()
                if mine:
                    return mine.popleft()
                self._has_reader = True
            found = None
            try:
                found = self._protocol.receive(self._channel, self._decoder, max_fds=1)
            finally:
                # At the channel's end, too: who is woken reads, and meets that end himself.
                with self._changed:
                    self._has_reader = False
                    if found is not None:
                        (self._requests if "op" in found[0] else self._answers).append(found)
                    self._changed.notify_all()
