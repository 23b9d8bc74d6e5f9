"""`with_assembly`: the machine code of a kernel's library, as text.

Functions of libraries that C++ text instantiates are left out. Where there is no disassembler, or
it fails, there is no text. The disassembler runs in a sandbox: a kernel's text shapes the library
that it parses.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kernelgym.errors import JudgeError
from kernelgym.judge.compiling import compiler_process
from kernelgym.judge.compiling.compiler_process import BuildLimit, has_failed
from kernelgym.judge.sandbox.paths import compiler_paths, readable_paths
from kernelgym.judge.untrusted.sandbox.sandbox import SandboxPlan

_FOR_CPU = ("objdump", "-d", "--no-show-raw-insn")
_FOR_GPU = ("cuobjdump", "-sass")
"""Disassemblers with their options."""
_DEVICE_CODE = b".nv_fatbin"  # section of a library that nvcc built
_FOREIGN = re.compile(
    r"_Z+N[KVRO]*(S[a-z]|St|2at|3c10|5torch|8pybind11|9kernelgym|9__gnu_cxx)|_ZS[a-z]|_ZT|_Zd|_Zn"
    r"|_ZZ?L?\d+(pybind11_|__)|_ZN12_GLOBAL__N_1(7convert|7produce|4call|4read)|_GLOBAL__|_init|_fini|_start"
    r"|__|deregister_tm|register_tm|frame_dummy|kernelgym_|pybind11_|_?Py|.*@plt$"
)
_FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_MOST_BYTES = 4 << 20
_MOST_READ = 64 << 20  # bytes of a listing, which may be sixty times as long as its library
_LONGEST_S = 60.0
_MEMORY_BYTES, _OPEN_FILES, _PROCESSES = 4 << 30, 256, 64


def with_assembly(files: Mapping[str, bytes], tier: str) -> dict[str, bytes]:
    """Return built files, with the machine code of each library beside it.

    Args:
        files: Files by name, such as ``extension.so``, whose code is ``kernel.s``, or
            ``kernel.sass`` if it holds code for GPUs; that of ``extension_2.so`` is ``kernel_2.s``.
        tier: Sandbox tier of the disassembler.
    """
    found = dict(files)
    for name, data in files.items():
        path = Path(name)
        on_gpu = path.suffix == ".cubin" or _DEVICE_CODE in data
        program = _FOR_GPU if on_gpu else _FOR_CPU
        if path.suffix not in (".so", ".cubin") or shutil.which(program[0]) is None:
            continue
        if text := _disassembled(program, path.suffix, data, tier):
            kernel = path.stem.replace("extension", "kernel")
            found[f"{kernel}.{'sass' if on_gpu else 's'}"] = text.encode()[:_MOST_BYTES]
    return found


def _disassembled(program: tuple[str, ...], suffix: str, data: bytes, tier: str) -> str:
    name, *options = program
    path = os.path.realpath(str(shutil.which(name)))
    with (
        tempfile.TemporaryDirectory(prefix="kernelgym-library-") as given,
        tempfile.TemporaryDirectory(prefix="kernelgym-listing-") as folder,
    ):
        library = Path(given, f"library{suffix}")
        library.write_bytes(data)
        plan = SandboxPlan(
            tier=tier,
            scratch=folder,
            readable=(
                *(*readable_paths("/usr", "/opt"), *compiler_paths(), os.path.dirname(path)),
                *("/bin", given),
            ),
            listable=(),
            memory_bytes=_MEMORY_BYTES,
            file_bytes=_MOST_READ,
            open_files=_OPEN_FILES,
            processes=_PROCESSES,
            exec_allowed=True,
        )
        try:
            running = compiler_process.start([path, *options, str(library)], plan)
            failed = has_failed(running.finish(BuildLimit(_LONGEST_S)))
        except (JudgeError, OSError):
            return ""
        listing = Path(folder, "log").read_bytes()[:_MOST_READ]
    if failed and len(listing) < _MOST_READ:  # a longer listing was cut off, which ends the program
        return ""
    text = listing.decode(errors="replace")
    return own_functions(text) if program == _FOR_CPU else text


def own_functions(listing: str) -> str:
    """Return the functions in a listing of objdump that do not come from a library.

    Args:
        listing: Output of ``objdump -d``, in which an empty line ends each function.
    """
    kept = []
    for block in listing.split("\n\n"):
        head, _, rest = block.lstrip("\n").partition("\n")
        found = _FUNCTION.match(head)
        if found is not None and rest and not _FOREIGN.match(found[1]):
            kept.append(f"{head}\n{rest}")
    return "\n\n".join(kept) + ("\n" if kept else "")
