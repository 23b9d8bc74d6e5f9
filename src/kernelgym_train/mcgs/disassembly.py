"""`with_assembly`: the machine code of a kernel's library, as text.

Functions of libraries that C++ text instantiates are left out. Where there is no disassembler, or
it fails, there is no text.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

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


def with_assembly(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return built files, with the machine code of each library beside it.

    Args:
        files: Files by name, such as ``extension.so``, whose code is ``kernel.s``, or
            ``kernel.sass`` if it holds code for GPUs; that of ``extension_2.so`` is ``kernel_2.s``.
    """
    found = dict(files)
    for name, data in files.items():
        path = Path(name)
        on_gpu = path.suffix == ".cubin" or _DEVICE_CODE in data
        program = _FOR_GPU if on_gpu else _FOR_CPU
        if path.suffix not in (".so", ".cubin") or shutil.which(program[0]) is None:
            continue
        if text := _disassembled(program, path.suffix, data):
            kernel = path.stem.replace("extension", "kernel")
            found[f"{kernel}.{'sass' if on_gpu else 's'}"] = text.encode()[:_MOST_BYTES]
    return found


def _disassembled(program: tuple[str, ...], suffix: str, data: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        file.write(data)
        file.flush()
        try:
            running = subprocess.Popen(
                [*program, file.name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            return ""
        with running:
            assert running.stdout is not None
            limit = threading.Timer(_LONGEST_S, running.kill)
            limit.start()
            listing = running.stdout.read(_MOST_READ)
            is_long = bool(running.stdout.read(1))
            if is_long:
                running.kill()
            limit.cancel()
    if running.returncode and not is_long:
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
