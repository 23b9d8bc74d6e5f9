"""`SearchLog`: the log of a search's events, one JSON object a line.

Contract: a line holds its number, the seconds that the search had run for, the event's name, its
fields, and a checksum of all that. `SearchLog.open` reads the lines that are there: a last line
that a kill cut short is removed, and a damaged line before it is a `UsageError`. Only one process
has a log open: it holds the lock of the log's folder (`kernelgym.records.run_lock`).
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kernelgym import UsageError
from kernelgym.records.run_lock import RunLock


@dataclass(frozen=True, slots=True)
class SearchEvent:
    """One event of a search, such as a proposal or a verdict."""

    number: int
    """Number of the event, from 0."""
    seconds: float
    """Seconds that the search had run, without pauses between a kill and a resumption."""
    name: str
    fields: Mapping[str, Any]

    def line(self) -> str:
        """Return the event as a line of JSON with a checksum."""
        row = {"number": self.number, "seconds": self.seconds, "event": self.name, **self.fields}
        return json.dumps({**row, "crc": _checksum(row)}, allow_nan=False) + "\n"


class SearchLog:
    """A log that is open for writing, made by `open`."""

    def __init__(self, file: IO[bytes], events: list[SearchEvent], lock: RunLock) -> None:
        self._file, self._lock = file, lock
        self.past = tuple(events)
        """Events that the file held when it was opened."""
        self._next = len(events)

    @classmethod
    def open(cls, path: Path) -> SearchLog:
        """Open a log, or begin one.

        Raises:
            UsageError: If another process has it open, or a line is damaged.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = RunLock(path.parent, "outdir")
        file = path.open("a+b")
        try:
            file.seek(0)
            data = file.read()
            events, length = _read(data, path)
            if length < len(data):
                file.truncate(length)
                os.fsync(file.fileno())
        except BaseException:
            file.close()
            lock.close()
            raise
        return cls(file, events, lock)

    def append(self, seconds: float, name: str, fields: Mapping[str, Any]) -> SearchEvent:
        """Write an event, and wait until it is on the disk."""
        event = SearchEvent(self._next, round(seconds, 3), name, fields)
        self._file.write(event.line().encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._next += 1
        return event

    def close(self) -> None:
        """Close the log, so that another process can open it."""
        self._file.close()
        self._lock.close()

    def __enter__(self) -> SearchLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_events(path: Path) -> list[SearchEvent]:
    """Return the whole events of a log, which another process may be writing.

    Raises:
        UsageError: If a line before the last is damaged, or the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the log {path}: {error.strerror}") from None
    return _read(data, path)[0]


def _read(data: bytes, path: Path) -> tuple[list[SearchEvent], int]:
    """Return the whole events, and the number of bytes that they take in the file."""
    events: list[SearchEvent] = []
    length = 0
    for line in data.splitlines(keepends=True):
        try:
            row = json.loads(line)
            sound = line.endswith(b"\n") and row.pop("crc") == _checksum(row)
            sound = sound and row["number"] == len(events)
        except (ValueError, KeyError, AttributeError, TypeError):
            sound = False
        if not sound:
            if length + len(line) < len(data):
                raise UsageError(
                    f"line {len(events) + 1} of {path} is damaged; remove the file to begin anew"
                )
            break
        length += len(line)
        events.append(SearchEvent(row.pop("number"), row.pop("seconds"), row.pop("event"), row))
    return events, length


def _checksum(row: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(row, sort_keys=True).encode()):08x}"
