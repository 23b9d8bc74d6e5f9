"""Logs of builds that lacked time, memory or another resource of the machine.

The judge retries such a build, and a cache does not keep its verdict.
"""

from __future__ import annotations

BUILD_TOO_LONG = "the build took longer than "
"""Beginning of the log of a build that ran out of time."""

COMPILER_SILENT = "the compiler exited with "
"""Beginning of the log of a compiler that failed without a message; its exit status follows."""

_TRANSIENT = (
    COMPILER_SILENT,
    *("killed", "cannot allocate memory", "virtual memory exhausted", "out of memory"),
    *("no space left on device", "resource temporarily unavailable", "died due to signal"),
)


def is_transient_build(log: str) -> bool:
    """Return True if a failed build lacked a resource of the machine, so that it may pass later.

    Args:
        log: The log of the build.
    """
    return log.startswith(BUILD_TOO_LONG) or any(sign in log.lower() for sign in _TRANSIENT)
