"""Chooses the entries to remove from a folder that exceeds its size: those used longest ago.

Finding the entries and removing them is the caller's part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_KEPT = 0.8  # of the limit, so that the next entry does not have everything looked at again


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A file or folder that counts towards a folder's size."""

    used: float
    """Time of the last use, in seconds since the epoch."""
    size_bytes: int
    path: str
    in_use: bool = False
    """Whether the entry must stay."""


def over_limit(entries: Iterable[Entry], limit_bytes: int) -> Iterator[Entry]:
    """Yield the entries to remove; none if all of them are within the limit.

    Args:
        entries: Everything that counts.
        limit_bytes: The folder's limit.
    """
    oldest_first = sorted(entries)
    total = sum(entry.size_bytes for entry in oldest_first)
    if total <= limit_bytes:
        return
    for entry in oldest_first:
        if total <= limit_bytes * _KEPT:
            return
        if not entry.in_use:
            total -= entry.size_bytes
            yield entry
