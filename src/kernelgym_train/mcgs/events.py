"""`SearchLog`: the log of a search's events, one JSON object a line.

Contract: a line holds its number, the seconds that the search had run for, the event's name, its
fields, and a checksum of all that. `SearchLog.open` reads the lines that are there: a last line
that a kill cut short is left out, and removed by the next one; a damaged line is a `UsageError`.
Only one process has a log open: it holds the lock of the log's folder
(`kernelgym.records.run_lock`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym import UsageError
from kernelgym.records.jsonlines import append_lines, read_lines
from kernelgym.records.run_lock import RunLock


@dataclass(frozen=True, slots=True)
class SearchEvent:
    """One event in the log of a search, such as a proposal or a verdict."""

    number: int
    """Number of the event, from 0."""
    seconds: float
    """Seconds that the search had run before the event; pauses between a kill and a resumption do
    not count."""
    name: str
    fields: Mapping[str, Any]


class SearchLog:
    """A log that is open for writing, made by `open`."""

    def __init__(self, path: Path, lock: RunLock) -> None:
        self._path, self._lock = path, lock
        self.past = tuple(read_events(path)) if path.exists() else ()
        """Events that the file held when it was opened."""
        self._next = len(self.past)

    @classmethod
    def open(cls, path: Path) -> SearchLog:
        """Open a log, or begin one.

        Raises:
            UsageError: If another process has it open, or a line is damaged.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = RunLock(path.parent, "outdir")
        try:
            return cls(path, lock)
        except BaseException:
            lock.close()
            raise

    def append(self, seconds: float, name: str, fields: Mapping[str, Any]) -> SearchEvent:
        """Write an event, and wait until it is on the disk."""
        event = SearchEvent(self._next, round(seconds, 3), name, fields)
        row = {"number": event.number, "seconds": event.seconds, "event": name, **fields}
        append_lines(self._path, [{**row, "crc": _checksum(row)}], sync=True)
        self._next += 1
        return event

    def close(self) -> None:
        """Close the log, so that another process can open it."""
        self._lock.close()

    def __enter__(self) -> SearchLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_events(path: Path) -> list[SearchEvent]:
    """Return the whole events of a log, which another process may be writing.

    Raises:
        UsageError: If a line is damaged, or the file cannot be read.
    """
    events: list[SearchEvent] = []
    for number, row in read_lines(path):
        if row.pop("crc", "") != _checksum(row) or row["number"] != len(events):
            raise UsageError(f"line {number} of {path} is damaged; remove the file to start over")
        events.append(SearchEvent(row.pop("number"), row.pop("seconds"), row.pop("event"), row))
    return events


def _checksum(row: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(row, sort_keys=True).encode()):08x}"
