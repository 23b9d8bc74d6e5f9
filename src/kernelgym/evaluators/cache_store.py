"""Verdicts on disk, one file each, filed under a digest of all that decides them.

Any number of processes and threads may use one folder. A file appears whole or not at all and
says what it holds, so a damaged one is not believed and the next verdict replaces it. The folder
is kept under a size: what was used longest ago goes first.

Who wants a verdict that is not there asks for its `Claim`, a lock on a file beside it which the
operating system releases when its holder dies. Nothing here judges, or decides what is worth
keeping.
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

from kernelgym.types import Verdict

__all__ = ["Claim", "VerdictStore"]

_ENTRY, _CLAIM, _STAGING = ".json", ".claim", ".tmp"
_KEPT = 0.8  # of the limit, so that not every verdict has to look again
_LOOKS = 16  # at the folder's size, in the time it takes to fill it once
_ABANDONED_S = 3600.0
_FILED, _ALONE = b"filed", b"alone"


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
        path = self._path(key, _ENTRY)
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
        path = self._path(key, _ENTRY)
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

    def claim(self, key: str) -> Claim:
        """Ask for the right to judge what is not there.

        Raises:
            OSError: If there are too many open files, say.
        """
        path = self._path(key, _CLAIM)
        path.parent.mkdir(exist_ok=True)
        return Claim(path)

    def cut_back(self) -> None:
        """Remove what was used longest ago until the folder is under its limit."""
        fd = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # somebody is at it
            entries = self._tidy()
            total = sum(size for _, size, _ in entries)
            if total <= self.limit_bytes:
                return
            for _, size, path in sorted(entries):
                if total <= self.limit_bytes * _KEPT:
                    return
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                total -= size
        finally:
            os.close(fd)

    def _tidy(self) -> list[tuple[float, int, str]]:
        """List the entries as (used, size, path), and remove what the dead have left."""
        entries, abandoned = [], time.time() - _ABANDONED_S
        for folder in os.scandir(self.folder):
            if not folder.is_dir(follow_symlinks=False):
                continue
            for file in os.scandir(folder.path):
                with contextlib.suppress(OSError):
                    stat = file.stat(follow_symlinks=False)
                    if file.name.endswith(_ENTRY):
                        entries.append((stat.st_mtime, stat.st_size, file.path))
                    elif stat.st_mtime < abandoned and file.name.endswith(_STAGING):
                        os.unlink(file.path)
                    elif stat.st_mtime < abandoned and file.name.endswith(_CLAIM):
                        _sweep(Path(file.path))
        return entries

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}{suffix}"


class Claim:
    """One asker's place in the queue for one verdict.

    Whoever holds the lock judges, and leaves to those who wait what became of it; a file without
    such a note has lost its owner, and the next in the queue takes over.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _open_files[self._fd] = None
        self.alone = False
        """Whether the owner before advises everybody to judge for themselves."""
        self.shared: Verdict | None = None
        """What the owner before leaves to those who waited, but not to others."""

    def take(self, wait: bool) -> bool:
        """Get to the head of the queue; false if that would take waiting, and `wait` is not set."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def look(self) -> bool:
        """Say, at the head of the queue, whether it is on the asker to judge.

        Otherwise `alone` or `shared` may be set; if neither is, the verdict has been filed, or
        there is a new queue.
        """
        left = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        if not left:
            return _is_at(self._fd, self._path)
        if left == _ALONE:
            self.alone = True
        elif left != _FILED:
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                self.shared = _read(left, "")
        return False

    def settle(self, shared: Verdict | None = None, alone: bool = False) -> None:
        """Say what became of it, and let the others go on: by default that it has been filed."""
        note = _FILED if shared is None else _write("", shared)
        with contextlib.suppress(OSError):  # a full disk: the next takes over
            os.pwrite(self._fd, _ALONE if alone else note, 0)
        self.leave()

    def leave(self) -> None:
        """Step out of the queue; at its head, end the queue if it has served its purpose."""
        fd, self._fd = self._fd, -1
        if fd not in _open_files:  # left already, or closed in a forked child
            return
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_size and _is_at(fd, self._path):
                os.unlink(self._path)
            # Also where a forked child has a copy of the descriptor.
            fcntl.flock(fd, fcntl.LOCK_UN)
        del _open_files[fd]
        os.close(fd)


_open_files: dict[int, None] = {}


def _close_in_child() -> None:
    """A child must not keep its parent's claims alive when the parent dies."""
    for fd in list(_open_files):
        with contextlib.suppress(OSError):
            os.close(fd)
    _open_files.clear()


os.register_at_fork(after_in_child=_close_in_child)


def _sweep(path: Path) -> None:
    claim = Claim(path)
    if claim.take(wait=False) and claim.look():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    claim.leave()


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


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
