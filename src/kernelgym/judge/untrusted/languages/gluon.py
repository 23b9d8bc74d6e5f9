"""Gluon beside a kernel: imports it, and describes its compile errors.

Gluon's functions are Triton's `JITFunction`, so Triton's hooks count their launches and route its
assembler and launchers.

Loaded by path in the untrusted process: standard library, torch and Triton only.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from traceback import walk_tb
from typing import Any

_COMPILES = frozenset({"compile", "cache_key"})
"""Functions of Triton that read and compile a kernel."""
_HINT = (
    "a step after the front end refused the kernel; gl.arange, gl.full and gl.zeros need a layout, "
    "and operands of one operation equal layouts (gl.convert_layout)"
)


def import_packages() -> None:
    """Import Gluon and its parts for NVIDIA's GPUs."""
    gluon = "triton.experimental.gluon"
    importlib.import_module(gluon)
    importlib.import_module(f"{gluon}.language")
    for name in ("ampere", "hopper", "blackwell"):
        with contextlib.suppress(ImportError):  # a version of Triton may lack one
            importlib.import_module(f"{gluon}.language.nvidia.{name}")


def environment(scratch: str) -> dict[str, str]:
    """Return no variables beside Triton's own."""
    return {}


def count_launches(launches: Any) -> None:
    """Do nothing: Triton's launches are counted for every kernel."""


def describe_error(error: BaseException, source_file: str) -> dict[str, Any]:
    """Return that a compiler refused the kernel, if the error arose while Triton compiled it."""
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    of_triton = [code for code in codes if f"{os.sep}triton{os.sep}" in code.co_filename]
    compiles = any(code.co_name in _COMPILES for code in of_triton)
    # An error of the operating system is no complaint, and neither is a launch that asks for more
    # shared memory or threads than there are.
    launches = isinstance(error, OSError) or type(error).__name__ == "OutOfResources"
    if not compiles or launches:
        return {}
    found: dict[str, Any] = {"compile": True}
    if "PassManager::run failed" in str(error):
        found["text"] = f"{error}: {_HINT}"
    return found


def begin(request: Callable[[dict[str, Any]], dict[str, Any]], target: str) -> Callable[[], int]:
    """Replace nothing, since Triton's programs are replaced for every kernel.

    For a target, launches compile and nothing is launched.

    Args:
        request: Function that has the trusted side run a program.
        target: A GPU that is not there, such as ``cuda:90a``; empty to launch.

    Returns:
        A function that returns how many kernels were compiled for the target.
    """
    return _compile_only(target) if target else lambda: 0


def _compile_only(target: str) -> Callable[[], int]:
    """Have launches compile for a GPU that is not there, and launch nothing."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia import compiler
    from triton.runtime import jit
    from triton.runtime.driver import driver

    number = int(target.partition(":")[2].rstrip("af"))
    driver.active.get_current_target = lambda: GPUTarget("cuda", number, 32)
    # Part of the cache's key only. Of another assembler it is not known, and no program may tell.
    known = compiler.get_ptxas_version()
    compiler.get_ptxas_version = lambda *_: known
    run, seen = jit.JITFunction.run, set()

    def compiled(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        made = run(self, *args, grid=grid, warmup=True, **kwargs)
        seen.add(getattr(made, "hash", id(made)))
        return made

    jit.JITFunction.run = compiled
    return lambda: len(seen)
