"""Follows the order of streams where the device ``cuda`` means the CPU: all work is done at once.

On a GPU work on a stream waits for another stream's work only if it was asked to. Here a launch is
refused if its stream does not wait for the work that comes before the call, which may still write
the inputs. A call is refused if the current stream at its end does not wait for a launch on
another stream.

Not covered: work of torch's operators on other streams, waiting by reading a value on the host, and
threads.

Loaded by path in the untrusted process: standard library only. Like `bounds_check.py`, it serves
honest kernels and is no security boundary.
"""

from __future__ import annotations

from collections.abc import Mapping

_WAIT = "on a GPU, that is done by stream.wait_stream(other), or by an event"


class StreamOrderError(RuntimeError):
    """Work on a stream does not wait for work that it needs."""


class StreamOrder:
    """Keeps, for each stream, the work that it waits for, to find work that runs too early."""

    def __init__(self) -> None:
        self.current = 0
        """Number of the current stream; the default one has number 0."""
        self._done, self._awaited = [0], [dict[int, int]()]
        self._finished: dict[int, int] = {}  # by what the host waited for
        self._begun = 0, 0

    def new(self) -> int:
        """Return the number of a new stream."""
        self._done.append(0)
        self._awaited.append({})
        return len(self._done) - 1

    def marks(self, stream: int) -> dict[int, int]:
        """Return the work that is done once all present work of a stream is done."""
        return {**self._awaited[stream], stream: self._done[stream]}

    def wait(self, stream: int, marks: Mapping[int, int]) -> None:
        """Make later work of a stream wait for other work."""
        _merge(self._awaited[stream], marks)

    def finish(self, marks: Mapping[int, int] | None = None) -> None:
        """Make the host, and so all later work, wait for work; without marks, for all work."""
        _merge(self._finished, dict(enumerate(self._done)) if marks is None else marks)

    def begin_call(self) -> None:
        """Mark the beginning of a call: work so far comes before it."""
        self._done[self.current] += 1
        self._begun = self.current, self._done[self.current]

    def launch(self) -> None:
        """Record a launch on the current stream.

        Raises:
            StreamOrderError: If it does not wait for the work before the call.
        """
        before, count = self._begun
        if not self._waits(self.current, before, count):
            raise StreamOrderError(
                "a kernel is launched on a stream that does not wait for the stream which was "
                f"current when the call began, and on which the inputs are written: {_WAIT}"
            )
        self._done[self.current] += 1

    def end_call(self) -> None:
        """Check that the current stream waits for all launches of the call.

        Raises:
            StreamOrderError: If it does not.
        """
        late = [n for n, done in enumerate(self._done) if not self._waits(self.current, n, done)]
        if late:
            self.finish()  # a call is blamed for its own launches alone
            raise StreamOrderError(
                "the call returns while the current stream does not wait for what was launched on "
                f"another one, which may write the output later: {_WAIT}"
            )

    def _waits(self, stream: int, other: int, count: int) -> bool:
        known = max(self._awaited[stream].get(other, 0), self._finished.get(other, 0))
        return stream == other or known >= count


def _merge(into: dict[int, int], marks: Mapping[int, int]) -> None:
    for stream, count in marks.items():
        into[stream] = max(into.get(stream, 0), count)


ORDER = StreamOrder()
"""The process's only `StreamOrder`."""
