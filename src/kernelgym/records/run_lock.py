"""Lock on the folder of a run, which says who writes it.

Contract: one process at a time holds the lock of a folder. Its file ``run.lock`` then holds the
process id, the host and the time. The operating system frees the lock when the process ends;
`RunLock.close` also empties the file, so what a free lock's file holds was left by a process that
was killed. `read_lock` changes nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from kernelgym.errors import UsageError
from kernelgym.file_lock import take

LOCK_FILE = "run.lock"
LOG = logging.getLogger("kernelgym.run")
"""Logger of the messages that commands print about a run."""
_TRIES, _WAIT_S = 5, 0.05
"""Number of attempts to take a lock, and seconds between them, since `read_lock` of another process
may hold it for an instant."""


@dataclass(frozen=True, slots=True)
class RunHolder:
    """Process that writes a run, or that was killed while it did."""

    pid: int
    """Id of the process on its host."""
    host: str
    """Name of the host."""
    since: str
    """Time at which the process took the lock, in ISO 8601."""

    @property
    def is_here(self) -> bool:
        """True if the process is, or was, on this host."""
        return self.host == socket.gethostname()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class RunLock:
    """Lock on a run's folder, held until it is closed.

    Args:
        folder: The folder; it exists.
        other: Option that names another folder, for the refusal.

    Raises:
        UsageError: If another process holds the lock, or its file cannot be written.
    """

    def __init__(self, folder: Path, other: str = "--out") -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                self._fd = take(folder / LOCK_FILE, fcntl.LOCK_EX | fcntl.LOCK_NB, 0o644)
                break
            except BlockingIOError:
                if not tries_left:
                    holder, _ = read_lock(folder)
                    who = f" ({holder})" if holder is not None else ""
                    raise UsageError(
                        f"another process{who} is writing the run in {str(folder)!r}; wait for it, "
                        f"or give another {other}"
                    ) from None
                time.sleep(_WAIT_S)
            except OSError as error:
                raise UsageError(
                    f"cannot keep a run in {str(folder)!r}: {error.strerror}"
                ) from None
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._write(json.dumps(asdict(RunHolder(os.getpid(), socket.gethostname(), now))))
        LOG.info("writing the run in %s", folder)

    def close(self) -> None:
        """Release the lock; may be called twice."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._write("")
            os.close(self._fd)
            self._fd = -1

    def _write(self, text: str) -> None:
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text.encode(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lock(folder: Path) -> tuple[RunHolder | None, bool]:
    """Return the process that a run's lock names, and whether it holds the lock now."""
    try:
        fd = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None, False
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            held = False
        except BlockingIOError:
            held = True
        except OSError:  # a file system without locks
            held = False
        try:
            return RunHolder(**json.loads(os.pread(fd, 4096, 0))), held
        except (ValueError, TypeError):
            return None, held
    finally:
        os.close(fd)
