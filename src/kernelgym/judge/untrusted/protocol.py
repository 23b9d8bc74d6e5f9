"""The judge's protocol: each message is four bytes of length, then that many bytes of JSON.

Both sides of the trust boundary use this file; the untrusted side loads it by path, so it imports
only the standard library. Messages carry data only: neither side unpickles anything.
"""

from __future__ import annotations

import array
import json
import socket
import struct
from typing import Any

MAX_MESSAGE_BYTES = 16 << 20
_HEADER = struct.Struct("!I")


class ProtocolError(Exception):
    """The other side sent something that is not a message."""


def pack(message: dict[str, Any]) -> bytes:
    """Encode one message."""
    body = json.dumps(message).encode("ascii")
    return _HEADER.pack(len(body)) + body


class Decoder:
    """Turns a stream of bytes into messages and refuses malformed ones."""

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._buffer = bytearray()
        self._max_bytes = max_bytes
        self.fds: list[int] = []
        """Descriptors that arrived for messages that `receive` has not returned yet."""

    def feed(self, data: bytes) -> None:
        """Add received bytes to those not yet decoded."""
        self._buffer += data

    @property
    def is_whole(self) -> bool:
        """Return True if a whole message has arrived."""
        if len(self._buffer) < _HEADER.size:
            return False
        (length,) = _HEADER.unpack_from(self._buffer)
        return len(self._buffer) >= _HEADER.size + int(length)

    def next(self) -> dict[str, Any] | None:
        """Return the next whole message, or None if more bytes are needed.

        Raises:
            ProtocolError: If the bytes are too many, not JSON, or not an object.
        """
        if len(self._buffer) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._buffer)
        if length > self._max_bytes:
            raise ProtocolError(f"a message of {length} bytes (at most {self._max_bytes})")
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a message that is not JSON ({type(error).__name__})") from None
        if not isinstance(message, dict):
            raise ProtocolError(f"a message that is a {type(message).__name__}, not an object")
        return message


def send(sock: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send one message, with open file descriptors attached to its first byte.

    The message states how many descriptors it carries, because one recv may also return bytes of
    earlier messages.
    """
    data = pack({**message, "fds": len(fds)} if fds else message)
    if fds:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        sent = sock.sendmsg([data], rights)
        data = data[sent:]
    sock.sendall(data)


def receive(
    sock: socket.socket, decoder: Decoder, max_fds: int = 0
) -> tuple[dict[str, Any], list[int]]:
    """Block for one message and the descriptors that came with it.

    Args:
        sock: The socket to read.
        decoder: Decoder that holds the bytes that earlier calls read and did not use.
        max_fds: The most descriptors that a message may carry; above 0 only if the sender is
            trusted.

    Raises:
        EOFError: If the other side closed the channel.
        ProtocolError: See `Decoder.next`.
    """
    while True:
        message = decoder.next()
        if message is not None:
            count = message.pop("fds", 0) if max_fds else 0
            fds, decoder.fds = decoder.fds[:count], decoder.fds[count:]
            return message, fds
        if max_fds:
            data, received, _, _ = socket.recv_fds(sock, 1 << 16, max_fds)
            decoder.fds += received
        else:
            data = sock.recv(1 << 16)
        if not data:
            raise EOFError
        decoder.feed(data)
