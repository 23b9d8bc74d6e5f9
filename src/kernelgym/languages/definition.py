"""What a kernel language is: all that the rooms above know about it, in one record.

A language's file fills in one `Language`. What runs beside the candidate (an interpreter's checks,
a stub for a compiler) is not here: it lies in `kernelgym.judge.untrusted`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelgym.languages.examples import WorkedExample

__all__ = ["Language", "OwnKernel", "Tool"]


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """What screening must find in an answer to see a kernel of its own in it.

    A language has a decorator or builders. Names are dotted names, resolved through imports.
    """

    decorator: str = ""
    """Name of what turns a function into a kernel, as its decorator or in a call."""
    decorator_aliases: str = ""
    """Pattern of the decorator's other names."""
    builders: tuple[str, ...] = ()
    """Last names of the functions that build a kernel from text; messages name the first."""
    device_code: str = ""
    """Pattern that one of the answer's texts must hold; empty if any text will do."""
    device_marker: str = ""
    """Name of that pattern in messages."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that must be installed before a kernel can be built."""

    name: str
    """A name that `kernelgym.judge.compiling.toolchain.check_tools` can find."""
    needed_by: str = ""
    """Text of the sources that need it; empty if every source does."""


@dataclass(frozen=True, slots=True)
class Language:
    """One kernel language: a way of giving `ModelNew` code of its own."""

    name: str
    title: str
    """Name of the language in prompts."""
    noun: str
    """Words for a kernel in this language in messages."""
    devices: tuple[str, ...]
    """Device kinds that can run it: ``cpu``, ``cuda``."""
    timed_on: tuple[str, ...]
    """Device kinds on which its speed means something (the Triton interpreter's does not)."""
    task: str
    """Task that the system prompt sets."""
    examples: tuple[WorkedExample, ...]
    """Worked examples for prompts, the simplest first."""
    sample: str
    """A correct kernel for `kernelgym.testing.SAMPLE_PROBLEM`, with a text ``+ 1.0`` to break."""
    own_kernel: OwnKernel
    """Pattern that screening counts as a kernel of its own."""
    precisions: tuple[str, ...] = ("fp64", "fp32", "fp16", "bf16")
    """Precisions that it can compute in."""
    fence: str = "python"
    """Language tag of the fenced block an answer is written in."""
    tools: tuple[Tool, ...] = ()
    """Programs that building a kernel needs."""
    interpreted_on: tuple[str, ...] = ()
    """Device kinds on which an interpreter runs its kernels."""
    interpreter_note: str = ""
    """Note in prompts on devices where an interpreter runs the kernels."""
    as_gpu_note: str = ""
    """Further note if the interpreter checks kernels by a GPU's compiler and rounding."""
    assembled_on: tuple[str, ...] = ()
    """Device kinds on which the judge's builder assembles what the language's compiler wrote."""
    watched_between_calls: bool = False
    """Whether evidence can be taken between judged calls; otherwise it takes another process.

    That needs kernels that Python launches: what an extension's functions return is overwritten
    when they are skipped.
    """
    find_trouble: Callable[[], str] | None = None
    """Returns what in the installed packages breaks honest kernels on the CPU; empty if nothing is
    known."""

    def is_timed(self, device: str) -> bool:
        """Return whether its speed means something on a device such as ``cpu`` or ``cuda:0``."""
        return _kind(device) in self.timed_on

    def is_interpreted(self, device: str) -> bool:
        """Return whether an interpreter runs its kernels on a device."""
        return _kind(device) in self.interpreted_on

    def is_assembled(self, device: str) -> bool:
        """Return whether the judge's builder assembles its kernels on a device."""
        return _kind(device) in self.assembled_on


def _kind(device: str) -> str:
    return str(device).partition(":")[0]
