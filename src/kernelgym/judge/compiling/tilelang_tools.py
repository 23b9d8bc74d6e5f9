"""Composes the commands that TileLang would start: nvcc for a kernel, a C++ compiler for its host.

TileLang writes CUDA C++ against headers of its own package and of CUTLASS, and C for the host's
side of a launch, into which it packs the compiled kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from kernelgym.judge.compiling.cpp_compiler import find_compiler
from kernelgym.judge.compiling.cuda_toolkit import cuda_toolkit, find_nvcc
from kernelgym.judge.compiling.programs import ProgramRefused, ProgramRun, package_folder, text_of
from kernelgym.judge.compiling.request import BadRequest, nvcc_flags

_NAME, _TITLE = "tilelang", "TileLang"
_FORMATS = ("cubin", "fatbin")
_ARCHITECTURE = re.compile(r"(?:sm|compute)_(\d{2,3})([af]?)")
_MOST_SOURCES = 8


def device_code(arguments: Mapping[str, Any]) -> ProgramRun:
    """Return the run of nvcc that compiles a kernel's device code.

    Args:
        arguments: The candidate's request: the CUDA text as ``source``, ``format`` (``cubin`` or
            ``fatbin``), and nvcc's ``options``, among them the architecture.

    Raises:
        ProgramRefused: If the request is invalid or an option is not allowed.
        UnsupportedLanguage: If nvcc is missing or cannot compile for the architecture.
    """
    kind = arguments.get("format")
    if kind not in _FORMATS:
        raise ProgramRefused(f"error: the format {kind!r:.40} is none of {', '.join(_FORMATS)}")
    try:
        options = nvcc_flags(arguments, "options")
    except BadRequest as error:
        raise ProgramRefused(f"error: {error}") from None
    found = _ARCHITECTURE.search(" ".join(options))
    if found is None:
        raise ProgramRefused("error: the options name no architecture")
    toolkit = cuda_toolkit(find_nvcc(), divmod(int(found[1]), 10), found[2])
    package = package_folder(_NAME, _TITLE)
    folders = [package / "src", package / "3rdparty" / "cutlass" / "include"]
    made = f"kernel.{kind}"
    command = [toolkit.nvcc, "-ccbin", find_compiler(), f"--{kind}", "-O3", "-lineinfo"]
    # Warnings about TileLang's own headers would fill the complaint before the kernel's error.
    command += ["-w", "-Xptxas=-v", *options, *(f"-I{folder}" for folder in folders)]
    command += ["-o", made, "kernel.cu"]
    return ProgramRun(
        command,
        {"kernel.cu": text_of(arguments, "source")},
        made,
        _NAME,
        starts_others=True,
        is_build=True,
        readable=(toolkit.root, *map(str, folders)),
        seen=(toolkit.version, version(_NAME)),
    )


def host_library(arguments: Mapping[str, Any]) -> ProgramRun:
    """Return the run of a C++ compiler that builds the host's side of a launch.

    Args:
        arguments: The candidate's request: the C texts as ``sources``.

    Raises:
        ProgramRefused: If the request is invalid.
        UnsupportedLanguage: If there is no compiler.
    """
    sources = arguments.get("sources")
    if not isinstance(sources, list) or not 0 < len(sources) <= _MOST_SOURCES:
        raise ProgramRefused(f"error: 'sources' are one to {_MOST_SOURCES} texts")
    texts = {f"lib{number}.c": text for number, text in enumerate(sources)}
    if not all(isinstance(text, str) for text in sources):
        raise ProgramRefused("error: 'sources' holds something that is no text")
    folders = [
        package_folder(_NAME, _TITLE) / "3rdparty" / "tvm" / "include",
        package_folder("tvm_ffi", _TITLE) / "include",
    ]
    command = [find_compiler(), "-shared", "-fPIC", "-o", "library.so", *texts]
    command += [f"-I{folder}" for folder in folders]
    return ProgramRun(
        command,
        texts,
        "library.so",
        _NAME,
        starts_others=True,
        is_build=True,
        readable=tuple(map(str, folders)),
        seen=(version(_NAME),),
    )
