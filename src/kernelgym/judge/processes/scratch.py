"""Scratch folders of workers: each worker has one, which is removed when the worker ends.

A worker holds a lock beside its folder for as long as it lives. The operating system releases the
lock however the worker ends. Another worker that can take the lock therefore knows that the folder
is abandoned, and sweeps it. A process id would not tell: several containers may share the cache
folder, each with process ids of its own.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

from kernelgym.file_lock import take


def claim(folder: Path) -> None:
    """Create a worker's scratch folder and hold its lock until this process ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # The lock is taken first and never closed: another worker may sweep a folder without a lock.
    take(_lock_of(folder), fcntl.LOCK_EX)
    folder.mkdir(mode=0o700, exist_ok=True)


def sweep(root: Path) -> None:
    """Remove the scratch folders under `root` whose workers are gone."""
    for lock in root.glob("*.lock"):
        try:
            fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(lock.with_suffix(""))
        except BlockingIOError:
            pass  # the worker that owns the folder is alive
        finally:
            os.close(fd)


def remove_folder(path: str | Path) -> None:
    """Remove a folder that hostile code may have filled, however deep.

    `rm` removes it: a recursive Python function would fail on folders nested deeply enough.
    """
    try:
        # Succeeds in the strongest tier: scratch is a private mount there, so the folder is empty.
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError:
        subprocess.run(["rm", "-rf", "--", str(path)], stderr=subprocess.DEVNULL, check=False)
    _lock_of(Path(path)).unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + ".lock")
