"""Verdicts on disk, one file each, filed under a digest of all that decides them.

Any number of processes and threads may use one folder. A file appears whole or not at all and
says what it holds, so a damaged one is not believed and the next verdict replaces it. The folder
is kept under a size: what was used longest ago goes first.

Two processes that judge the same file it twice; the later file stands. Nothing here judges, or
decides what is worth keeping.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
import threading
import time
from pathlib import Path

from kernelgym.judge.disk_limit import Entry, over_limit
from kernelgym.judge.file_lock import locked
from kernelgym.types import Verdict

__all__ = ["VerdictStore"]

_ENTRY, _STAGING = ".json", ".tmp"
_LOOKS = 16  # at the folder's size, in the time it takes to fill it once
_ABANDONED_S = 3600.0


class VerdictStore:
    """A folder of verdicts.

    Args:
        folder: Made if it does not exist.
        limit_bytes: Size of all entries above which it is cut back.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._unseen_bytes = limit_bytes  # so that the first entry looks at what is there

    def find(self, key: str) -> Verdict | None:
        """Look a verdict up, and note that it is used; None too if its file is damaged."""
        path = self._path(key)
        try:
            verdict = _read(path.read_bytes(), key)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return verdict

    def file(self, key: str, verdict: Verdict) -> None:
        """Keep a verdict in place of any other.

        Raises:
            OSError: If the disk is full or the folder gone.
        """
        data = _write(key, verdict)
        path = self._path(key)
        path.parent.mkdir(exist_ok=True)
        fd, staging = tempfile.mkstemp(suffix=_STAGING, dir=path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.replace(staging, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(staging)
            raise
        with self._lock:
            self._unseen_bytes += len(data)
            due = self._unseen_bytes * _LOOKS > self.limit_bytes
            if due:
                self._unseen_bytes = 0
        if due:
            self.cut_back()

    def cut_back(self) -> None:
        """Remove what was used longest ago until the folder is under its limit."""
        try:
            with locked(self.folder / ".lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
                for entry in over_limit(self._tidy(), self.limit_bytes):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)
        except BlockingIOError:
            return  # another process is at it

    def _tidy(self) -> list[Entry]:
        """List the entries, and remove what killed processes were writing."""
        entries, abandoned = [], time.time() - _ABANDONED_S
        for folder in os.scandir(self.folder):
            if not folder.is_dir(follow_symlinks=False):
                continue
            for file in os.scandir(folder.path):
                with contextlib.suppress(OSError):
                    stat = file.stat(follow_symlinks=False)
                    if file.name.endswith(_ENTRY):
                        entries.append(Entry(stat.st_mtime, stat.st_size, file.path))
                    elif stat.st_mtime < abandoned and file.name.endswith(_STAGING):
                        os.unlink(file.path)
        return entries

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}{_ENTRY}"


def _write(key: str, verdict: Verdict) -> bytes:
    # ASCII only: what a kernel prints may hold lone surrogates.
    text = json.dumps(verdict.to_dict()).encode("ascii")
    head = {"key": key, "sha256": hashlib.sha256(text).hexdigest()}
    return json.dumps(head).encode() + b"\n" + text


def _read(data: bytes, key: str) -> Verdict:
    """Rebuild a verdict; ValueError and the like if the data is not what was written."""
    head, _, text = data.partition(b"\n")
    expected = {"key": key, "sha256": hashlib.sha256(text).hexdigest()}
    if json.loads(head) != expected:
        raise ValueError("the entry is damaged")
    return Verdict.from_dict(json.loads(text))
