"""Builds the small C modules through which Triton launches kernels, once for every source.

Triton writes one for each signature and starts a C compiler on it, which takes as long as all the
rest of compiling a kernel. A candidate hands its text over instead, as it does with extensions,
and gets a library that is filed by that text: what one kernel asked for may serve another.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kernelgym.judge.compiler_process import Running, bounded, has_failed, is_transient
from kernelgym.judge.fork_server import driver_libraries
from kernelgym.judge.library_cache import Built, LibraryCache
from kernelgym.judge.toolchain import find_compiler

__all__ = ["build_launcher"]

_FLAGS = ("-O2", "-shared", "-fPIC", "-Wno-psabi", "-w")
_MODULE = "launcher"


def build_launcher(
    source: str,
    cache: LibraryCache,
    scratch_root: Path,
    start: Callable[[list[str], Path], Running],
    allowed_s: float,
) -> Built:
    """Build a module from C.

    Args:
        source: Its text.
        cache: Keeps what was built.
        scratch_root: Folder for intermediate files.
        start: Starts a compiler in a sandbox, in a folder.
        allowed_s: Wall seconds it may take.

    Raises:
        UnsupportedLanguage: If there is no compiler.
        JudgeError: If it cannot be run.
    """
    started = time.monotonic()
    command = [find_compiler(), *_FLAGS, "-xc", "launcher.c", "-o", "launcher.so"]
    command += [f"-I{folder}" for folder in _include_folders()]
    for library in driver_libraries():
        command += ["-xnone", library]
    text = "\0".join([*command, source])
    name = f"launcher-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.so"
    if (path := cache.find_object(name)) is not None:
        return Built(str(path), _MODULE, "", True, time.monotonic() - started)
    with tempfile.TemporaryDirectory(prefix="launcher-", dir=scratch_root) as folder:
        scratch = Path(folder)
        (scratch / "launcher.c").write_text(source, encoding="utf-8", errors="surrogatepass")
        running = start(command, scratch)
        try:
            log = running.finish(started + allowed_s)
        finally:
            running.end()
        if has_failed(log):
            transient = is_transient(log)
            return Built("", "", bounded(log), False, 0.0, may_pass_later=transient)
        path = cache.file_object(scratch / "launcher.so", name)
    cache.cut_back()
    return Built(str(path), _MODULE, "", False, time.monotonic() - started)


def _include_folders() -> list[str]:
    """Python's headers, and the driver's as Triton brings them."""
    folders = [sysconfig.get_paths()["include"]]
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin is not None:
        folders.append(str(Path(triton.origin).parent / "backends" / "nvidia" / "include"))
    return folders
