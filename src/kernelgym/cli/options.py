"""Options that several commands share, as a base class of their dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

__all__ = ["Command", "JudgingOptions", "MemoryOption"]


@dataclass(frozen=True, kw_only=True)
class Command:
    """Base class of the commands: their common option, and what they do when run."""

    verbose: Annotated[bool, tyro.conf.arg(aliases=["-v"])] = False
    """Show the traceback of a failure."""

    def run(self) -> int:
        """Do what the command is for; return the exit code."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MemoryOption(Command):
    """What commands take that run problems."""

    memory: str = ""
    """Most memory that judging one kernel may take, such as 12GB; half of the device's if not
    given. Problems that need more are refused before anything runs."""


@dataclass(frozen=True, kw_only=True)
class JudgingOptions(Command):
    """What every command that judges takes."""

    language: str = "triton"
    """Language of the kernel: triton or cpp on the CPU."""
    device: str = "cpu"
    """Device it runs on."""
    ruleset: str = "strict"
    """Rules of the verdict: strict or kernelbench."""
    sizes: str = "full"
    """Sizes of KernelBench's problems: full, or small for a laptop."""
