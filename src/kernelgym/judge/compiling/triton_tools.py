"""Runs the programs that Triton would start: the assembler, and a C compiler for launchers.

A candidate hands over the text, as it does with extensions, and gets what a sandboxed program made
of it, filed by that text: what one kernel asked for may serve another. Triton writes a launcher
for each signature; to compile one takes as long as all the rest of compiling a kernel.
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
from kernelgym.judge.compiling.compiler_process import Ready, bounded, has_failed, is_transient
from kernelgym.judge.compiling.library_cache import Built, LibraryCache
from kernelgym.judge.compiling.toolchain import find_compiler
from kernelgym.judge.sandbox.paths import driver_libraries

__all__ = ["Away", "assemble", "build_launcher"]

Away = Callable[[], AbstractContextManager[object]]
"""Makes a block in which others may go first, while a candidate waits for what it asked for."""

_FLAGS = ("-O2", "-shared", "-fPIC", "-Wno-psabi", "-w")
_MODULE = "triton"
_OPTION = re.compile(r"(?!-o$)-{1,2}[A-Za-z][A-Za-z-]*(=[\w.,-]+)?|\d+")
_PROMPT_S = 0.25
_NEWER_ARCH = 100  # from which on Triton takes an assembler of its own


def build_launcher(
    source: str,
    cache: LibraryCache,
    take: Callable[[], Ready],
    allowed_s: float,
    away: Away,
) -> Built:
    """Build a module from C.

    Args:
        source: Its text.
        cache: Keeps what was built.
        take: Returns what stands in a sandbox and can become the compiler.
        allowed_s: Wall seconds it may take.
        away: Entered if it takes long.

    Raises:
        UnsupportedLanguage: If there is no compiler.
        JudgeError: If it cannot be run.
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
    take: Callable[[], Ready],
    allowed_s: float,
    away: Away,
) -> Built:
    """Assemble PTX with the assembler that comes with Triton.

    Args:
        ptx: Its text.
        options: The assembler's, as the candidate names them.
        cache: Keeps what was made.
        take: Returns what stands in a sandbox and can become the assembler.
        allowed_s: Wall seconds it may take.
        away: Entered if it takes long.

    Raises:
        JudgeError: If the assembler cannot be run.
    """
    named = [str(option) for option in options] if isinstance(options, list) else [""]
    refused = next((option for option in named if not _OPTION.fullmatch(option)), None)
    if refused is not None:
        return Built("", "", f"the assembler's option {refused[:80]!r} is refused", False, 0.0)
    arch = re.search(r"--gpu-name=sm_(\d+)", " ".join(named))
    newer = arch is not None and int(arch[1]) >= _NEWER_ARCH
    command = [_assembler(newer), *named, "kernel.ptx", "-o", "kernel.cubin"]
    names = ("kernel.ptx", "kernel.cubin")
    return _make(command, names, ptx, cache, take, allowed_s, away)


def _make(
    command: list[str],
    names: tuple[str, str],
    source: str,
    cache: LibraryCache,
    take: Callable[[], Ready],
    allowed_s: float,
    away: Away,
) -> Built:
    """Run a command on one text in a folder of its own, or find what it made of it before."""
    started = time.monotonic()
    given, made = names
    text = "\0".join([*command, source])
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    name = f"{digest}-{made}"
    if (path := cache.find_object(name)) is not None:
        return Built(str(path), _MODULE, "", True, time.monotonic() - started)
    ready = take()
    try:
        scratch = ready.scratch
        (scratch / given).write_text(source, encoding="utf-8", errors="surrogatepass")
        running = ready.run(command, allowed_s)
        # Most take less than it takes to let somebody go first.
        with nullcontext() if running.ends_within(_PROMPT_S) else away():
            log = running.finish(time.monotonic() + allowed_s)  # not while others go first
        if has_failed(log):
            transient = is_transient(log)
            return Built("", "", bounded(log), False, 0.0, may_pass_later=transient)
        path = cache.file_object(scratch / made, name)
    finally:
        ready.end()
    cache.cut_back()
    return Built(str(path), _MODULE, "", False, time.monotonic() - started)


def _include_folders() -> list[str]:
    """Python's headers, and the driver's as Triton brings them."""
    return [sysconfig.get_paths()["include"], str(_backend() / "include")]


def _assembler(newer: bool) -> str:
    """Return the path of the assembler that Triton would start."""
    name = "ptxas-blackwell" if newer else "ptxas"
    own = os.environ.get(f"TRITON_{name.upper().replace('-', '_')}_PATH")
    return own or str(_backend() / "bin" / name)


def _backend() -> Path:
    triton = importlib.util.find_spec("triton")
    if triton is None or triton.origin is None:
        raise JudgeError("a kernel asks for Triton's tools, but Triton is not installed")
    return Path(triton.origin).parent / "backends" / "nvidia"
