"""Options that several commands share, as a base class of their dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Command:
    """Base class of all commands: the option ``--verbose``, and the method that runs a command."""

    verbose: Annotated[bool, tyro.conf.arg(aliases=["-v"])] = False
    """Show the traceback of a failure."""

    def run(self) -> int:
        """Run the command; return the exit code."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MemoryOption(Command):
    """Option of commands that run problems."""

    memory: str = ""
    """Memory budget of judging one kernel, such as 12GB; half of the device's memory if not given.
    Problems that need more are refused before anything runs."""


@dataclass(frozen=True, kw_only=True)
class JudgingOptions(Command):
    """Options of commands that judge kernels."""

    language: str = "triton"
    """Language of the kernel: triton or cpp on the CPU."""
    device: str = "cpu"
    """Device on which the kernel runs."""
    ruleset: str = "strict"
    """Rules of the verdict: strict or kernelbench."""
    sizes: str = "full"
    """Sizes of KernelBench's problems: full, or small for a laptop."""
