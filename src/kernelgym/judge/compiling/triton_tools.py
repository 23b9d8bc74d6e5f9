"""Runs the programs that Triton would start: the assembler, and a C compiler for launchers.

A candidate sends a source text, as for an extension, and gets the output of a sandboxed program.
The output is cached by the text, so another kernel with the same text gets it at once. Triton
writes a launcher for each signature of a kernel; compiling one takes as long as all other steps of
compiling a kernel together.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sysconfig
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError
from kernelgym.judge.compiling.compiler_process import (
    BuildLimit,
    ReadyCompiler,
    bounded,
    has_failed,
    is_transient,
)
from kernelgym.judge.compiling.cpp_compiler import find_compiler
from kernelgym.judge.compiling.library_cache import BuiltLibrary, LibraryCache
from kernelgym.judge.compiling.machine_code import NO_CODE, MachineCode, device_code
from kernelgym.judge.sandbox.paths import driver_libraries

__all__ = ["Away", "assemble", "build_launcher"]

Away = Callable[[], AbstractContextManager[object]]
"""Returns a block during which the device can be yielded, as the candidate waits for a build."""

_FLAGS = ("-O2", "-shared", "-fPIC", "-Wno-psabi", "-w")
_MODULE = "triton"
_OPTION = re.compile(r"(?!-o$)-{1,2}[A-Za-z][A-Za-z-]*(=[A-Za-z0-9_.,-]+)?|[0-9]+")
_MOST_OPTIONS, _LONGEST_OPTION = 100, 200
_PROMPT_S = 0.25
_REPORT = ".report"
_LONGEST_REPORT = 100_000
_NEWER_ARCH = 100  # Triton uses a separate assembler from sm_100 on


def build_launcher(
    source: str,
    cache: LibraryCache,
    take: Callable[[], ReadyCompiler],
    allowed_s: float,
    away: Away,
) -> BuiltLibrary:
    """Compile a launcher's C text to a Python module.

    Args:
        source: The C text.
        cache: Keeps the result.
        take: Returns a sandboxed process on standby.
        allowed_s: Limit on the build in seconds.
        away: Entered if the build takes more than 0.25 s.

    Raises:
        UnsupportedLanguage: If there is no compiler.
        JudgeError: If the compiler cannot be run.
    """
    command = [find_compiler(), *_FLAGS, "-xc", "launcher.c", "-o", "launcher.so"]
    command += [f"-I{folder}" for folder in _include_folders()]
    for library in driver_libraries():
        command += ["-xnone", library]
    names = ("launcher.c", "launcher.so")
    return _make(command, names, source, cache, take, allowed_s, away)


def assemble(
    ptx: str,
    options: Any,
    cache: LibraryCache,
    take: Callable[[], ReadyCompiler],
    allowed_s: float,
    away: Away,
) -> BuiltLibrary:
    """Assemble PTX with Triton's assembler.

    Args:
        ptx: The PTX text.
        options: The candidate's options for the assembler.
        cache: Keeps the result.
        take: Returns a sandboxed process on standby.
        allowed_s: Limit on the assembler in seconds.
        away: Entered if the assembler takes more than 0.25 s.

    Raises:
        JudgeError: If the assembler cannot be run.
    """
    named = [str(option) for option in options] if isinstance(options, list) else [""]
    if len(named) > _MOST_OPTIONS:
        return BuiltLibrary(
            "", "", f"error: the assembler takes {_MOST_OPTIONS} options", False, 0.0
        )
    for option in named:
        if len(option) > _LONGEST_OPTION or not _OPTION.fullmatch(option):
            message = f"error: the assembler's option {option[:80]!r} is refused"
            return BuiltLibrary("", "", message, False, 0.0)
    arch = re.search(r"--gpu-name=sm_([0-9]{1,4})", " ".join(named))
    newer = arch is not None and int(arch[1]) >= _NEWER_ARCH
    verbose = [] if "-v" in named or "--verbose" in named else ["-v"]
    command = [_assembler(newer), *verbose, *named, "kernel.ptx", "-o", "kernel.cubin"]
    names = ("kernel.ptx", "kernel.cubin")
    return _make(command, names, ptx, cache, take, allowed_s, away)


def _make(
    command: list[str],
    names: tuple[str, str],
    source: str,
    cache: LibraryCache,
    take: Callable[[], ReadyCompiler],
    allowed_s: float,
    away: Away,
) -> BuiltLibrary:
    """Run a command on a text, or return its cached output."""
    started = time.monotonic()
    given, made = names
    text = "\0".join([*command, source])
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    name = f"{digest}-{made}"
    if (path := cache.find_object(name)) is not None:
        code = _reported(cache.find_object(f"{name}{_REPORT}"))
        return BuiltLibrary(str(path), _MODULE, "", True, time.monotonic() - started, code=code)
    ready = take()
    try:
        scratch = ready.scratch
        (scratch / given).write_text(source, encoding="utf-8", errors="surrogatepass")
        running = ready.run(command)
        # Most commands end sooner than the device could be yielded.
        with nullcontext() if running.ends_within(_PROMPT_S) else away():
            # The limit starts here, so that it does not count the time until `away` was entered.
            limit = BuildLimit(allowed_s)
            limit.watch(running)
            log = running.finish(limit)
        if has_failed(log):
            transient = is_transient(log)
            return BuiltLibrary("", "", bounded(log), False, 0.0, may_pass_later=transient)
        if not (scratch / made).is_file():  # an option may ask for a version only
            return BuiltLibrary("", "", f"error: {command[0]} wrote no {made}", False, 0.0)
        report = None
        if made.endswith(".cubin"):  # registers and spills, which the assembler was asked to tell
            (scratch / "report").write_text(log[:_LONGEST_REPORT], encoding="utf-8")
            report = cache.file_object(scratch / "report", f"{name}{_REPORT}")
        path = cache.file_object(scratch / made, name)
    finally:
        ready.end()
    cache.cut_back()
    spent_s, starved_s = time.monotonic() - started, limit.starvation.missed_s
    code = _reported(report)
    return BuiltLibrary(str(path), _MODULE, "", False, spent_s, starved_s=starved_s, code=code)


def _reported(report: Path | None) -> MachineCode:
    """Return the registers, spills and sizes that an assembler reports for its kernel."""
    try:
        code = NO_CODE if report is None else device_code(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return NO_CODE
    return code if code.functions else NO_CODE


def _include_folders() -> list[str]:
    """Return the folders of Python's and the driver's headers."""
    return [sysconfig.get_paths()["include"], str(_backend() / "include")]


def _assembler(newer: bool) -> str:
    """Return the path of the assembler that Triton would start.

    Args:
        newer: Whether it is the one for sm_100 and later.
    """
    name = "ptxas-blackwell" if newer else "ptxas"
    own = os.environ.get(f"TRITON_{name.upper().replace('-', '_')}_PATH")
    return own or str(_backend() / "bin" / name)


def _backend() -> Path:
    triton = importlib.util.find_spec("triton")
    if triton is None or triton.origin is None:
        raise JudgeError("a kernel asks for Triton's tools, but Triton is not installed")
    return Path(triton.origin).parent / "backends" / "nvidia"
