"""Composes the commands that Triton would start: the assembler, and a C compiler for launchers.

Triton writes a launcher for each signature of a kernel; compiling one takes as long as all other
steps of compiling a kernel together.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge.compiling.cpp_compiler import find_compiler
from kernelgym.judge.compiling.programs import ProgramRefused, ProgramRun, package_folder, text_of
from kernelgym.judge.sandbox.paths import driver_libraries

_FLAGS = ("-O2", "-shared", "-fPIC", "-Wno-psabi", "-w")
_MODULE = "triton"
_OPTION = re.compile(r"(?!-o$)-{1,2}[A-Za-z][A-Za-z-]*(=[A-Za-z0-9_.,-]+)?|[0-9]+")
_MOST_OPTIONS, _LONGEST_OPTION = 100, 200
_NEWER_ARCH = 100  # Triton uses a separate assembler from sm_100 on


def launcher(arguments: Mapping[str, Any]) -> ProgramRun:
    """Return the run that compiles a launcher's C text to a Python module.

    Args:
        arguments: The candidate's request: the C text as ``source``.

    Raises:
        ProgramRefused: If the request is invalid.
        UnsupportedLanguage: If there is no compiler.
    """
    command = [find_compiler(), *_FLAGS, "-xc", "launcher.c", "-o", "launcher.so"]
    command += [f"-I{folder}" for folder in _include_folders()]
    for library in driver_libraries():
        command += ["-xnone", library]
    texts = {"launcher.c": text_of(arguments, "source")}
    # The C compiler starts others, for which the process on standby has no room.
    return ProgramRun(command, texts, "launcher.so", _MODULE, starts_others=True)


def assembler(arguments: Mapping[str, Any]) -> ProgramRun:
    """Return the run of Triton's assembler on PTX.

    Args:
        arguments: The candidate's request: the PTX as ``source``, the assembler's ``options``.

    Raises:
        ProgramRefused: If the request is invalid or an option is not allowed.
    """
    options = arguments.get("options")
    named = [str(option) for option in options] if isinstance(options, list) else [""]
    if len(named) > _MOST_OPTIONS:
        raise ProgramRefused(f"error: the assembler takes {_MOST_OPTIONS} options")
    for option in named:
        if len(option) > _LONGEST_OPTION or not _OPTION.fullmatch(option):
            raise ProgramRefused(f"error: the assembler's option {option[:80]!r} is refused")
    arch = re.search(r"--gpu-name=sm_([0-9]{1,4})", " ".join(named))
    newer = arch is not None and int(arch[1]) >= _NEWER_ARCH
    verbose = [] if "-v" in named or "--verbose" in named else ["-v"]
    command = [_assembler(newer), *verbose, *named, "kernel.ptx", "-o", "kernel.cubin"]
    texts = {"kernel.ptx": text_of(arguments, "source")}
    return ProgramRun(command, texts, "kernel.cubin", _MODULE)


def _include_folders() -> list[str]:
    """Return the folders of Python's and the driver's headers."""
    return [sysconfig.get_paths()["include"], str(_backend() / "include")]


@functools.lru_cache(maxsize=8)
def check_assembles_for(number: int) -> None:
    """Check that Triton's PTX assembler supports a GPU.

    Args:
        number: The GPU's compute capability without its point: 90 for sm_90.

    Raises:
        UnsupportedLanguage: If it does not; the message lists the GPUs that it supports.
    """
    assembler = _assembler(number >= _NEWER_ARCH)
    if not os.path.isfile(assembler):
        return  # Triton itself reports that its NVIDIA backend is missing
    told = subprocess.run([assembler, "--help"], capture_output=True, text=True, check=False)
    known = dict.fromkeys(re.findall(r"'(sm_[0-9]+)[af]?'", told.stdout))
    if known and f"sm_{number}" not in known:
        raise UnsupportedLanguage(
            f"Triton's assembler {Path(assembler).name} does not support sm_{number}, "
            f"only {', '.join(known)}; choose one of these, or install another release of Triton"
        )


def _assembler(newer: bool) -> str:
    """Return the path of the PTX assembler that Triton would start.

    Args:
        newer: Whether the assembler is the one for sm_100 and later.
    """
    name = "ptxas-blackwell" if newer else "ptxas"
    own = os.environ.get(f"TRITON_{name.upper().replace('-', '_')}_PATH")
    return own or str(_backend() / "bin" / name)


def _backend() -> Path:
    return package_folder(_MODULE, "Triton") / "backends" / "nvidia"
