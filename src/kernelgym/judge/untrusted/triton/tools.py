"""Lets Triton compile in a process that may not start programs.

For every kernel Triton starts an assembler, and a C compiler for the kernel's launcher. Here both
become requests over the channel: the trusted side runs the program in a sandbox and caches its
result by its input. All other steps of Triton's compilation run in the candidate, warmed up in the
zygote.

Loaded by path in the untrusted process: standard library, torch and triton only. Code in the same
process can undo the replacement, so it serves honest kernels and is no security boundary.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

Request = Callable[[dict[str, Any]], dict[str, Any]]


def replace_tools(request: Request) -> None:
    """Replace Triton's calls of programs by `request`, which blocks for the answer."""
    try:
        from triton import knobs
        from triton.backends.nvidia import compiler
    except ImportError:
        return

    def build(name: str, src: str, srcdir: str, *_: Any) -> str:
        with open(src) as file:
            reply = request({"program": "launcher", "source": file.read()})
        if "module" not in reply:
            raise RuntimeError(f"Triton's launcher was not built: {reply.get('failed')}")
        path = os.path.join(srcdir, f"{name}.so")
        _save(reply["fds"][0], path)
        return path

    def assemble(command: list[str], stderr: Any = None, **_: Any) -> Any:
        *options, source, _output, path = command[1:]
        with open(source) as file:
            reply = request({"program": "ptxas", "source": file.read(), "options": options})
        if "module" not in reply:
            with open(stderr.name, "a") as log:
                log.write(str(reply.get("failed", "")))
            raise subprocess.CalledProcessError(1, command)
        _save(reply["fds"][0], path)
        return subprocess.CompletedProcess(command, 0)

    with contextlib.suppress(AttributeError):  # older versions of Triton lack this hook
        knobs.build.impl = build
    names = {name: getattr(subprocess, name) for name in subprocess.__all__}
    compiler.subprocess = SimpleNamespace(**{**names, "run": assemble})


def _save(fd: int, path: str) -> None:
    with os.fdopen(fd, "rb") as made, open(path, "wb") as copy:
        made.seek(0)
        copy.write(made.read())


def look_up_tools(arch: int) -> None:
    """Make Triton cache its tools' paths and versions before the fork.

    A candidate may not start the programs that find them.

    Args:
        arch: Compute capability as one number, such as 90.
    """
    from triton import knobs
    from triton.backends.nvidia import compiler, driver
    from triton.runtime import build, cache

    for ask in (
        lambda: build.platform_key(),  # runs `file`; part of every cache key
        lambda: cache.triton_key(),  # reads all files of Triton
        lambda: knobs.nvidia.ptxas,
        lambda: knobs.nvidia.ptxas_blackwell,
        lambda: compiler.get_ptxas_version(arch),  # cached by argument; part of every cache key
        compiler.get_ptxas_version,
        driver.library_dirs,
    ):
        try:
            ask()
        except Exception:
            continue  # this version of Triton lacks it, or does not need it
    with contextlib.suppress(Exception):
        compile_something(arch)


def compile_something(arch: int) -> None:
    """Compile a small kernel without a device, to import Triton's compiler.

    A process's first compilation takes half a second longer than later ones.
    """
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    @triton.jit  # type: ignore[untyped-decorator]
    def add_one(x_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1.0, mask=mask)

    kept = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="kernelgym-warm-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            signature = {"x_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
            source = ASTSource(fn=add_one, signature=signature, constexprs={"BLOCK": 128})
            triton.compile(source, target=GPUTarget("cuda", arch, 32))
        finally:
            if kept is None:
                del os.environ["TRITON_CACHE_DIR"]
            else:
                os.environ["TRITON_CACHE_DIR"] = kept
