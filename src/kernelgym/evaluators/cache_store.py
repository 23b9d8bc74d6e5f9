"""Stores verdicts on disk, one file each, under a digest of all that decides them.

Contract:

- any number of processes and threads may use one folder;
- a file is written atomically and holds its own digest, so a damaged file is ignored and the next
  verdict replaces it;
- the folder is kept under a size limit; the least recently used files are removed first;
- if two processes judge the same kernel, both write the file, and the later one stays.

Does not judge, and does not decide which verdicts are cached.
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

from kernelgym.disk_limit import Entry, over_limit
from kernelgym.file_lock import locked
from kernelgym.types import Verdict

_ENTRY, _STAGING = ".json", ".tmp"
_LOOKS = 16  # checks of the folder's size while as many bytes are written as the limit allows
_ABANDONED_S = 3600.0


class VerdictStore:
    """A folder of verdicts.

    Args:
        folder: The folder; created if missing.
        limit_bytes: Total size above which files are removed.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._unseen_bytes = limit_bytes  # so that the first verdict checks the folder's size

    def find(self, key: str) -> Verdict | None:
        """Return a verdict and mark it used; None if missing or damaged."""
        path = self._path(key)
        try:
            verdict = _read(path.read_bytes(), key)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return verdict

    def file(self, key: str, verdict: Verdict) -> None:
        """Store a verdict, replacing an earlier one.

        Raises:
            OSError: If the disk is full or the folder is gone.
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
        """Remove the least recently used verdicts while above the limit."""
        try:
            with locked(self.folder / ".lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
                for entry in over_limit(self._tidy(), self.limit_bytes):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)
        except BlockingIOError:
            return  # another process is removing files

    def _tidy(self) -> list[Entry]:
        """Return the store's entries, after removing unfinished files of killed processes."""
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
    # ASCII only: a kernel's output may hold lone surrogates, which UTF-8 cannot encode.
    text = json.dumps(verdict.to_dict()).encode("ascii")
    head = {"key": key, "sha256": hashlib.sha256(text).hexdigest()}
    return json.dumps(head).encode() + b"\n" + text


def _read(data: bytes, key: str) -> Verdict:
    """Return the verdict in the data of a file of the verdict cache.

    Raises:
        ValueError: If the data is damaged; or another exception of JSON and `Verdict.from_dict`.
    """
    head, _, text = data.partition(b"\n")
    expected = {"key": key, "sha256": hashlib.sha256(text).hexdigest()}
    if json.loads(head) != expected:
        raise ValueError("the entry is damaged")
    return Verdict.from_dict(json.loads(text))
