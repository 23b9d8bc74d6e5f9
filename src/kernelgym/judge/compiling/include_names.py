"""Reads names in ``#include`` lines, and headers of fixed folders.

A name comes from a candidate's text, and the reader is the trusted worker: opening it as a path
would let the candidate choose a device that never ends, a pipe that blocks or a file of gigabytes.

Contract:

- `included_names` takes time that is linear in the text: a match begins at the line of its ``#``;
- `Headers` never joins a name to a path. It lists the files of its folders once and looks a name
  up in that list, so a name that is absolute, climbs with ``..``, or holds a NUL is merely unknown;
- a listed file is opened once, without following a link or blocking, and read only if it is a
  regular file of at most 1 MB;
- the walk over includes visits every listed file at most once, and no other.

Does not preprocess: an include that a macro names is not found.
"""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

__all__ = ["Headers", "included_names"]

_INCLUDE = re.compile(r'^[ \t\f\v]*+#[ \t\f\v]*+include[ \t\f\v]*+[<"]([^">\n]+)[">]', re.M)
_LARGEST_BYTES = 1 << 20
_MOST_FILES = 50_000
_SUFFIXES = (".h", ".hpp", ".cuh", ".inc", ".inl")


def included_names(text: str) -> frozenset[str]:
    """Return the names in a text's ``#include`` lines."""
    return frozenset(_INCLUDE.findall(text))


class Headers:
    """The headers in some folders that no candidate can write to.

    Args:
        folders: Searched in this order, as a compiler does.
    """

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self._folders = folders

    def find(self, name: str) -> tuple[Path, str] | None:
        """Return a header's folder and text; None if it is not listed.

        Args:
            name: As an ``#include`` line has it. Not trusted.
        """
        for folder in self._folders:
            path = _listed(folder).get(name)
            if path is not None and (text := _read(path)) is not None:
                return folder, text
        return None


@functools.lru_cache(maxsize=8)
def _listed(folder: Path) -> Mapping[str, str]:
    """Return a folder's headers: paths by name relative to it.

    Some installers link a package's files; such a link is resolved here, once, since `_read`
    follows none. Links to folders are not followed, so the walk ends.
    """
    found: dict[str, str] = {}
    waiting = [""]
    while waiting and len(found) < _MOST_FILES:
        prefix = waiting.pop()
        try:
            entries = sorted(os.scandir(folder / prefix), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{prefix}{entry.name}/")
            elif entry.name.endswith(_SUFFIXES):
                link = entry.is_symlink()
                found[prefix + entry.name] = os.path.realpath(entry.path) if link else entry.path
    return MappingProxyType(found)


def _read(path: str) -> str | None:
    """Return a small regular file's text; None if it is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_BYTES:
            return None
        return file.read(_LARGEST_BYTES).decode("utf-8", "replace")
