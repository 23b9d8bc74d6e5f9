"""Count calls in which no custom kernel was launched.

Contract: every answer of a candidate carries a count of launches (`untrusted/watch/launches.py`
says which launches count). A kernel that computes something launches in every call, watched or
not, timed or not. A kernel that leaves the work to torch while it is not watched does not.

Not covered: hostile kernels. They share the process that counts, so they can forge the count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelgym.languages import noun_of
from kernelgym.types import Finding, Kernel, Severity


@dataclass(slots=True)
class LaunchTally:
    """Number of calls in a session, and of those without a launch."""

    calls: int = 0
    idle: int = 0

    def add(self, calls: int, launched: Any) -> None:
        """Add `calls` calls in which the candidate claims `launched` launches."""
        if type(launched) is not int:
            launched = 0
        self.calls += calls
        self.idle += max(0, calls - max(0, launched))

    def finding(self, kernel: Kernel, severity: Severity, watched: int = 0) -> Finding | None:
        """Return the finding on idle calls; None if no call was idle.

        Args:
            kernel: The kernel; the message names its language.
            severity: The finding's severity.
            watched: Number of launches that a watched call showed.
        """
        if not self.idle:
            return None
        name = noun_of(kernel.language)
        if self.idle < self.calls:
            message = f"no {name} was launched in {self.idle} of {self.calls} calls"
        elif watched:
            message = f"a {name} was launched only while it was watched"
        else:
            message = f"no {name} was launched while the outputs were computed"
        if watched:
            message += ": launch it in every call, in every process, whatever was called before"
        return Finding("no_kernel_launch", message, severity)
