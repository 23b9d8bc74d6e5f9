"""Calls in which no custom kernel was launched, as far as the kernel's own process says.

Every answer carries a count of launches (`launches.py` says of what). A kernel that computes
something launches in every call, watched or not, timed or not; one that leaves the work to torch
as soon as nobody watches does not. The counts come from a process that the kernel shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelgym.languages import noun_of
from kernelgym.types import Finding, Kernel, Severity

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Calls of one session, and those of them that launched nothing."""

    calls: int = 0
    idle: int = 0

    def add(self, calls: int, launched: Any) -> None:
        """Note so many calls that claim so many launches together."""
        if type(launched) is not int:
            launched = 0
        self.calls += calls
        self.idle += max(0, calls - max(0, launched))

    def finding(self, kernel: Kernel, severity: Severity, watched: int = 0) -> Finding | None:
        """Return what to say of idle calls; None if there were none.

        Args:
            kernel: The kernel, for the language that messages name.
            severity: How much it weighs.
            watched: Launches that were seen in a call that was watched.
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
            message += ": launch it in every call, whatever the process or the call before it"
        return Finding("no_kernel_launch", message, severity)
