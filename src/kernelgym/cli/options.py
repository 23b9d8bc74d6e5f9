"""Options that several commands share, as a base class of their dataclasses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from kernelgym.errors import UsageError


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
class ResultsOption(Command):
    """Option of commands whose results may be written to a file."""

    json: str = ""
    """Path of a JSON file to which all results are written as well."""

    def check_json(self) -> None:
        """Refuse a results file that cannot be written, before any work is done."""
        if self.json and not Path(self.json).resolve().parent.is_dir():
            raise UsageError(f"cannot write {self.json!r}: its folder does not exist")
        if self.json and Path(self.json).is_dir():
            raise UsageError(f"cannot write {self.json!r}: it is a folder; name a file")

    def write_json(self, results: Mapping[str, Any]) -> None:
        """Write results to their file, if one was asked for."""
        if not self.json:
            return
        try:
            Path(self.json).write_text(json.dumps(results, indent=2) + "\n", "utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {self.json!r}: {error.strerror}") from None


@dataclass(frozen=True, kw_only=True)
class JudgingOptions(Command):
    """Options of commands that judge kernels."""

    language: str = "triton"
    """Language of the kernel: triton or cpp on the CPU; on a GPU also cuda and others."""
    device: str = "cpu"
    """Device on which the kernel runs."""
    ruleset: str = "strict"
    """Rules of the verdict: strict or kernelbench."""
    sizes: str = "full"
    """Sizes of KernelBench's problems: full, or small for a laptop."""


def path_apart(out: str, *read: str, option: str = "--out") -> Path:
    """Return an output path, after checking that the command does not read that file.

    Args:
        out: Path of the file to write.
        read: Paths of the files that are read.
        option: Option that gave the path, for the error message.

    Raises:
        UsageError: If it is one of the files that are read.
    """
    path = Path(out)
    if path.resolve() in [Path(file).resolve() for file in read]:
        raise UsageError(f"{option} {out} is the file that is read; name another one")
    return path
