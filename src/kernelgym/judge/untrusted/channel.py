"""The candidate's end of the channel to its judge: one stream of messages for several threads.

The process's main thread waits for requests; at the same time any thread of the kernel may wait
for a build. The thread that waits first reads the socket. It queues messages meant for another
thread and wakes that thread. No thread of its own does the reading, because the trusted side
counts threads. While one thread waits, a message costs no system call beyond its own.

Loaded by path in the untrusted process: standard library only.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from types import ModuleType
from typing import Any

_Message = tuple[dict[str, Any], list[int]]


class Inbox:
    """Sorts messages from the trusted side into requests and answers to builds.

    A request has an ``op``; an answer to a build has none.

    Args:
        channel: The socket that the messages come from.
        protocol: The module `protocol.py`, which frames the messages.
    """

    def __init__(self, channel: socket.socket, protocol: ModuleType) -> None:
        self._channel, self._protocol = channel, protocol
        self._decoder = protocol.Decoder()
        self._sending, self._building = threading.Lock(), threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        self._has_reader = False
        """True while a thread reads from the channel."""
        self._requests: deque[_Message] = deque()
        self._answers: deque[_Message] = deque()

    def request(self) -> _Message:
        """Return the next request and its descriptors; waits for them.

        Raises:
            EOFError: If the other side closed the channel.
        """
        return self._next(self._requests)

    def build(self, arguments: dict[str, Any]) -> _Message:
        """Request a build; return the answer and its descriptors.

        Raises:
            EOFError: If the other side closed the channel.
        """
        with self._building:  # answers carry no id: one build at a time
            self.send({"build": arguments})
            return self._next(self._answers)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message without mixing it with those of other threads."""
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
                # Also at the end of the channel: each woken thread then reads and gets EOFError;
                # without this it would wait for ever.
                with self._changed:
                    self._has_reader = False
                    if found is not None:
                        (self._requests if "op" in found[0] else self._answers).append(found)
                    self._changed.notify_all()
