"""`Language`: everything that the judge, prompts and tools know about a kernel language.

Each language's file fills in one `Language`. Code that runs in the candidate's process (an
interpreter's checks, a stub for a compiler) lies in `kernelgym.judge.untrusted` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelgym.languages.examples import WorkedExample


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """Signs by which screening recognises that an answer contains a custom kernel.

    A language has either a decorator or builders. Names are dotted and resolved through imports.
    """

    decorator: str = ""
    """Name of the decorator that makes a kernel of a Python function; a call of it counts too."""
    decorator_aliases: str = ""
    """Regular expression for the decorator's other names."""
    takes_plain_functions: bool = False
    """Whether a decorated kernel may call functions of Python that are not decorated, because its
    compiler traces them."""
    builders: tuple[str, ...] = ()
    """Last parts of names of functions that build kernels from text; messages name the first."""
    device_code: str = ""
    """Regular expression that a text given to a builder must match; empty if any text will do."""
    device_marker: str = ""
    """Words for `device_code` in messages."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Program that must be installed before a kernel can be built."""

    name: str
    """Name of the program, as `kernelgym.judge.compiling.requirements` looks it up."""
    needed_by: str = ""
    """Text that marks the sources that need the program; empty if every source does."""


@dataclass(frozen=True, slots=True)
class Package:
    """Python package that must be installed before a language's kernels can run."""

    name: str
    """Name of the distribution, as pip knows it."""
    install: str
    """Arguments of ``pip install`` that bring it."""
    at_least: tuple[int, ...] = ()
    """Lowest version that works, such as ``(4, 8)``; empty if any does."""
    below: tuple[int, ...] = ()
    """Lowest version that is too new; empty if none is known."""


@dataclass(frozen=True, slots=True)
class HeaderRoot:
    """Checkout of headers that a language's kernels include and that no package installs."""

    variable: str
    """Environment variable that names the checkout, for the judge and for kernels alike."""
    holds: str
    """File inside the checkout by which it is recognised, such as ``include/kittens.cuh``."""
    folders: tuple[str, ...]
    """Folders inside the checkout that a build may search."""
    source: str
    """Address of the repository, for messages."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice on a usual mistake, which a message adds to the compiler's complaint."""

    complaint: str
    """Regular expression for the compiler's complaint."""
    text: str
    """Remedy in one line."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language, or way of building, in which `ModelNew` gets custom kernels."""

    name: str
    title: str
    """Name of the language in prompts."""
    noun: str
    """Words for a kernel in this language in messages."""
    devices: tuple[str, ...]
    """Device kinds that can run the language: ``cpu``, ``cuda``."""
    timed_on: tuple[str, ...]
    """Device kinds on which kernels are timed (not those on which an interpreter runs them)."""
    task: str
    """Text of the task in the system prompt."""
    examples: tuple[WorkedExample, ...]
    """Worked examples for prompts, the simplest first."""
    sample: str
    """Correct kernel for `kernelgym.testing.SAMPLE_PROBLEM`; tests break it at its ``+ 1.0``."""
    own_kernel: OwnKernel
    """Signs by which screening recognises a custom kernel."""
    precisions: tuple[str, ...] = ("fp64", "fp32", "fp16", "bf16")
    """Precisions that kernels can compute in."""
    fence: str = "python"
    """Language tag of the fenced code block that an answer is written in."""
    tools: tuple[Tool, ...] = ()
    """Programs that building a kernel needs."""
    packages: tuple[Package, ...] = ()
    """Python packages that running a kernel needs."""
    headers: tuple[HeaderRoot, ...] = ()
    """Checkouts of headers that building a kernel may include."""
    told_by: str = ""
    """Pattern that a text in a kernel must match to be taken for this language, where kernels of
    another language look alike, as HIP's and CUDA's do; empty if there is no such language."""
    least_capability: tuple[int, int] = (0, 0)
    """Lowest compute capability of a GPU that runs its kernels."""
    below_capability: tuple[int, int] = (0, 0)
    """Lowest compute capability of a GPU that is too new for its kernels; (0, 0) if none is known.
    """
    architecture_suffix: str = ""
    """Letter of the GPU architecture that its extensions are built for, such as ``a`` of sm_90a."""
    least_driver: tuple[int, int] = (0, 0)
    """Lowest version of CUDA that the GPU's driver has to support."""
    half: str = ""
    """Name of the module under `kernelgym.judge.untrusted.languages` that runs beside its kernels;
    empty if there is none. Kernels of languages with different modules never share a zygote."""
    interpreted_on: tuple[str, ...] = ()
    """Device kinds on which an interpreter runs its kernels."""
    interpreter_note: str = ""
    """Note in prompts on devices where an interpreter runs the kernels."""
    as_gpu_note: str = ""
    """Further note in prompts if the interpreter also checks kernels by the rules of a GPU."""
    assembled_on: tuple[str, ...] = ()
    """Device kinds on which the judge's builder assembles the output of the language's compiler."""
    compiled_for: tuple[str, ...] = ()
    """Device kinds of GPUs for which kernels can be compiled on a machine without one."""
    advice: tuple[Advice, ...] = ()
    """Advice that messages add to the complaints of the compiler that builds its extensions."""
    watched_between_calls: bool = False
    """Flag that evidence of launches can be taken between judged calls, in the same process.

    That needs kernels that Python launches. For an extension's functions the evidence needs another
    process, because their results are overwritten when they are skipped.
    """
    find_trouble: Callable[[], str] | None = None
    """Function that returns a message about installed packages that break honest kernels on the
    CPU; an empty message if no trouble is known."""

    def is_timed(self, device: str) -> bool:
        """Return whether kernels are timed on a device such as ``cpu`` or ``cuda:0``."""
        return _kind(device) in self.timed_on

    def is_interpreted(self, device: str) -> bool:
        """Return whether an interpreter runs the language's kernels on a device."""
        return _kind(device) in self.interpreted_on

    def is_assembled(self, device: str) -> bool:
        """Return whether the judge's builder assembles the language's kernels on a device."""
        return _kind(device) in self.assembled_on


def _kind(device: str) -> str:
    return str(device).partition(":")[0]
