"""Finished extensions, filed by content and shared by all workers of this machine.

The folder is kept under a size: what was used longest ago goes first. A worker that uses an entry
notes so under a shared lock, and entries go under an exclusive one, so that what one worker has
just been given is never taken from under it by another. Neither candidates nor compilers can read
the folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from kernelgym.judge.compiling.library_symbols import NOTHING_LEFT, LibraryWork
from kernelgym.judge.disk_limit import Entry, over_limit
from kernelgym.judge.file_lock import locked

__all__ = ["CACHE_BYTES", "Built", "LibraryCache"]

CACHE_BYTES = 4 << 30
_IN_USE_S = 60.0  # from being handed out to being copied takes milliseconds
_OBJECT_IN_USE_S = 86400.0  # a shared object is linked at the end of a build
_ABANDONED_S = 3600.0
_STAGING = "staging-"


@dataclass(frozen=True, slots=True)
class Built:
    """The outcome of one build."""

    path: str
    """The library; empty if it did not build."""
    module: str
    """Name under which Python imports it: no two libraries share one."""
    log: str
    """What the compiler said, bounded."""
    cached: bool
    wall_s: float
    may_pass_later: bool = False
    """True for a failure for want of time or memory, which says little about the source."""
    work: LibraryWork = NOTHING_LEFT
    """What the library has done elsewhere."""


class LibraryCache:
    """A folder of finished libraries and of objects they share.

    Args:
        folder: Made if it does not exist.
        limit_bytes: Size above which it is cut back.
    """

    def __init__(self, folder: Path, limit_bytes: int = CACHE_BYTES) -> None:
        self.folder, self._limit_bytes = folder, limit_bytes
        self._lock = folder / ".lock"
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> Built | None:
        """Look a library up, and note that it is used."""
        folder = self.folder / key
        try:
            with locked(self._lock, fcntl.LOCK_SH):
                record = json.loads((folder / "built.json").read_text())
                os.utime(folder)
            return Built(
                str(folder / "extension.so"),
                record["module"],
                record["log"],
                True,
                0.0,
                work=LibraryWork(tuple(record["hidden"]), tuple(record["beside"])),
            )
        except (OSError, ValueError, KeyError):
            return None

    def file(self, built: Built, key: str) -> Built:
        """Move a finished library in; whoever is first wins."""
        folder = self.folder / key
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self.folder))
        shutil.move(built.path, staging / "extension.so")
        record = {"module": built.module, "log": built.log, **dataclasses.asdict(built.work)}
        (staging / "built.json").write_text(json.dumps(record))
        try:
            with locked(self._lock, fcntl.LOCK_SH):
                try:
                    staging.rename(folder)
                except OSError:
                    os.utime(folder)
                    shutil.rmtree(staging, ignore_errors=True)
        finally:
            self.cut_back()
        return dataclasses.replace(built, path=str(folder / "extension.so"))

    def find_object(self, name: str) -> Path | None:
        """Look a shared object file up, and note that it is used."""
        path = self.folder / name
        with contextlib.suppress(OSError), locked(self._lock, fcntl.LOCK_SH):
            os.utime(path)
            return path
        return None

    def file_object(self, source: Path, name: str) -> Path:
        """Move an object file in; of two the later one wins, since both are the same."""
        os.replace(source, self.folder / name)
        return self.folder / name

    def cut_back(self) -> None:
        """Remove what was used longest ago until the folder is under its limit."""
        gone = []
        with locked(self._lock, fcntl.LOCK_EX):
            now = time.time()
            entries = []
            for found in os.scandir(self.folder):
                with contextlib.suppress(OSError):  # another worker's staging folder, moved on
                    used = found.stat(follow_symlinks=False).st_mtime
                    if found.name.startswith(_STAGING):
                        if now - used > _ABANDONED_S:
                            gone.append(found.path)
                    elif not found.name.startswith("."):
                        in_use_s = _IN_USE_S if found.is_dir() else _OBJECT_IN_USE_S
                        in_use = now - used < in_use_s
                        entries.append(Entry(used, _size(found), found.path, in_use))
            for entry in over_limit(entries, self._limit_bytes):
                # Out of everybody's sight at once; files are deleted without the lock.
                hidden = tempfile.mkdtemp(prefix=_STAGING, dir=self.folder)
                os.rename(entry.path, f"{hidden}/gone")
                gone.append(hidden)
        for path in gone:
            shutil.rmtree(path, ignore_errors=True)


def _size(entry: os.DirEntry[str]) -> int:
    if not entry.is_dir(follow_symlinks=False):
        return entry.stat(follow_symlinks=False).st_size
    return sum(file.stat(follow_symlinks=False).st_size for file in os.scandir(entry.path))
