"""``logs.log`` in a run's folder: what a command said, step by step, with times.

Contract: only commands log into a run. The file holds the beginning and the end of each command,
what it says of its progress, warnings of Python and records of all loggers from WARNING on. It is
opened once this process holds the run's lock, so that a command that is refused leaves the run as
it was; what was logged before is written then.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelgym.records.run_lock import LOG, read_lock

LOG_FILE = "logs.log"
_MOST_WAITING = 1_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _RunHandler(logging.Handler):
    """Log handler that writes into a run's folder once this process holds its lock."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._waiting: list[logging.LogRecord] = []
        self._inner: logging.FileHandler | None = None
        formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or keep it until the lock is held."""
        if self._inner is None and self._is_ours():
            self._inner = logging.FileHandler(self._folder / LOG_FILE, encoding="utf-8", delay=True)
            self._inner.setFormatter(self.formatter)
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                self._inner.emit(each)
        if self._inner is not None:
            self._inner.emit(record)
        elif len(self._waiting) < _MOST_WAITING:
            self._waiting.append(record)

    def close(self) -> None:
        """Close the file."""
        if self._inner is not None:
            self._inner.close()
        super().close()

    def _is_ours(self) -> bool:
        for place in (self._folder, *self._folder.glob("kernels/*")):
            holder, held = read_lock(place)
            if held and holder is not None and holder.is_here and holder.pid == os.getpid():
                return True
        return False


@contextlib.contextmanager
def run_logs(folder: Path) -> Iterator[None]:
    """Log into a run's folder during the block.

    Args:
        folder: The folder; it need not exist yet.
    """
    root, handler, level = logging.getLogger(), _RunHandler(folder), LOG.level
    # A root logger with a handler no longer prints warnings by itself.
    printer = logging.lastResort if not root.handlers else None
    handlers = [handler, *([printer] if printer is not None else [])]

    def of_others(record: logging.LogRecord) -> bool:
        return record.name != LOG.name  # the command itself prints what it logs, in one line

    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **given: Any) -> None:
        LOG.warning("%s: %s", category.__name__, message)
        shown(message, category, *place, **given)

    for each in handlers:
        root.addHandler(each)
    if printer is not None:
        printer.addFilter(of_others)
    LOG.setLevel(logging.INFO)
    warnings.showwarning = show
    try:
        LOG.info("begun by process %d on %s", os.getpid(), socket.gethostname())
        yield
    except KeyboardInterrupt as interrupt:
        LOG.info("%s", str(interrupt) or "interrupted")
        raise
    except BaseException:
        LOG.exception("failed")
        raise
    else:
        LOG.info("ended")
    finally:
        warnings.showwarning = shown
        LOG.setLevel(level)
        for each in handlers:
            root.removeHandler(each)
        if printer is not None:
            printer.removeFilter(of_others)
        handler.close()


def visible(text: str) -> str:
    """Return `text` with control characters and lone surrogates written as escapes."""
    text = text.replace("\r\n", "\n")
    text = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def tell(line: str, prefix: str = "") -> None:
    """Print a line about a run to standard error, and log it; control characters as escapes."""
    line = visible(line)
    LOG.info("%s", line)
    print(f"{prefix}{line}", file=sys.stderr, flush=True)
