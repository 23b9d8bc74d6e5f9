"""What a process writes, kept within bounds."""

from __future__ import annotations

__all__ = ["BoundedStream"]

_KEPT_OUTPUT_BYTES = 16_384


class BoundedStream:
    """The beginning and the end of a stream."""

    def __init__(self) -> None:
        self.total = 0
        self._head, self._tail = bytearray(), bytearray()

    def add(self, data: bytes) -> None:
        """Take in what was written next."""
        self.total += len(data)
        room = _KEPT_OUTPUT_BYTES // 2 - len(self._head)
        self._head += data[:room]
        self._tail += data[max(0, room) :]
        del self._tail[: -_KEPT_OUTPUT_BYTES // 2]

    def text(self) -> str:
        """Return beginning and end, and how much is missing between them."""
        cut = self.total - len(self._head) - len(self._tail)
        middle = f"\n... {cut} bytes cut ...\n" if cut > 0 else ""
        head = self._head.decode("utf-8", "replace")
        return head + middle + self._tail.decode("utf-8", "replace")
