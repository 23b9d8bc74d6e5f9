"""Scratch folders of workers: one each, gone with it, swept if it could not clean up itself.

A worker holds a lock beside its folder for as long as it lives. The kernel releases the lock
whatever ends the worker, so a folder whose lock can be had is nobody's any more; process ids would
not tell, since several containers may share the cache folder.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

from kernelgym.judge.file_lock import take

__all__ = ["claim", "remove_folder", "sweep"]


def claim(folder: Path) -> None:
    """Make a folder this process's own until it ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # The lock comes first and stays open: a folder without one may be swept.
    take(_lock_of(folder), fcntl.LOCK_EX)
    folder.mkdir(mode=0o700, exist_ok=True)


def sweep(root: Path) -> None:
    """Remove the folders under `root` whose owners are gone."""
    for lock in root.glob("*.lock"):
        try:
            fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(lock.with_suffix(""))
        except BlockingIOError:
            pass  # its owner lives
        finally:
            os.close(fd)


def remove_folder(path: str | Path) -> None:
    """Remove a folder that hostile code may have filled: however deep, without recursion."""
    try:
        os.rmdir(path)  # empty in the strongest tier, where scratch is a private mount
    except FileNotFoundError:
        pass
    except OSError:
        subprocess.run(["rm", "-rf", "--", str(path)], stderr=subprocess.DEVNULL, check=False)
    _lock_of(Path(path)).unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + ".lock")
