"""Composes the source files of an extension from the arguments of `load_inline`.

Does not choose the headers that the files are compiled against: `thin_headers` does.

Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernelgym.judge.compiling.request import BuildRequest
from kernelgym.judge.compiling.thin_headers import THIN_HEADERS, included_names

UNIT, CUDA_UNIT = "unit.cpp", "unit.cu"
BINDING_UNIT = THIN_HEADERS / "binding.cpp"
# Many kernels name a C++ standard that older versions of torch wanted. torch's headers need C++17
# now, the thin ones C++20.
_OLD_STANDARD = {
    thin: re.compile(rf"-std=(c|gnu)\+\+(98|03|0x|11|1y|14{'|1z|17' if thin else ''})")
    for thin in (False, True)
}
_CUDA_HEADERS = ("torch/types.h", "cuda.h", "cuda_runtime.h")
_BINDS_ITSELF = re.compile(r"\b(PYBIND11_\w+|TORCH_LIBRARY\w*|pybind11|py::)")
# Parts of the C++ front end that thin headers lack: an attempt with them would waste time.
_WANTS_ALL = re.compile(r"\btorch::(nn|autograd|optim|data|serialize)\b")
_BRINGS_TORCH = frozenset({"torch/extension.h", "torch/torch.h", "torch/all.h"})


@dataclass(frozen=True, slots=True)
class SourceUnit:
    """One translation unit of an extension."""

    file: str
    sources: tuple[str, ...]
    flags: tuple[str, ...]
    """The candidate's flags for this unit's compiler."""
    tabled: bool = False
    """Whether the table in kernelgym_bind.h binds the unit's functions, so that it needs no
    pybind11."""

    @property
    def cuda(self) -> bool:
        """Whether nvcc compiles the unit."""
        return self.file == CUDA_UNIT

    @property
    def can_be_thin(self) -> bool:
        """Whether the unit may be compiled with the short stand-ins for torch's headers."""
        return not any(_WANTS_ALL.search(text) for text in self.sources)

    @property
    def binds(self) -> bool:
        """Whether the unit uses pybind11 or ``TORCH_LIBRARY``, and so needs Python's headers."""
        return any(_BINDS_ITSELF.search(text) for text in self.sources)


def units(request: BuildRequest) -> tuple[SourceUnit, ...]:
    """Return the units to compile: C++, CUDA or both."""
    implicit = request.implicit_headers or any(
        _BRINGS_TORCH & included_names(text) for text in request.cpp_sources
    )
    found = []
    blank = not any(text.strip() for text in request.cpp_sources)
    if not (blank and request.functions is None and request.cuda_sources):
        tabled = request.functions is not None and implicit
        found.append(SourceUnit(UNIT, request.cpp_sources, request.cflags, tabled))
    if request.cuda_sources:
        found.append(SourceUnit(CUDA_UNIT, request.cuda_sources, request.cuda_cflags))
    return tuple(found)


def module_name(request: BuildRequest, tabled: bool) -> str:
    """Return the name under which Python imports an extension's library.

    Args:
        request: The checked request.
        tabled: Whether the table in kernelgym_bind.h binds its functions.
    """
    return "kernelgym_extension" if tabled else request.name


def compile_flags(unit: SourceUnit, thin: bool) -> tuple[str, ...]:
    """Return the candidate's compiler flags, with C++20 for outdated standards."""
    old = _OLD_STANDARD[thin and not unit.cuda]  # only the table of functions needs C++20
    flags = tuple(
        f"-std={match[1]}++20" if (match := old.fullmatch(flag)) else flag for flag in unit.flags
    )
    if unit.cuda and not any(flag.startswith(("-std", "--std")) for flag in flags):
        return ("-std=c++20", *flags)  # only without another one: nvcc warns about a second
    return flags


def compose(request: BuildRequest, unit: SourceUnit, thin: bool) -> dict[str, str]:
    """Return a unit's files by name; the main one includes the others.

    Each of the candidate's texts becomes an unchanged file of its own, so that line numbers in
    compiler messages are those of the author's text.
    """
    suffix = Path(unit.file).suffix
    files = {_file_name(number, suffix): text for number, text in enumerate(unit.sources)}
    parts = []
    if request.implicit_headers:
        implicit = _CUDA_HEADERS if unit.cuda else ("torch/extension.h",)
        parts += [f"#include <{name}>" for name in implicit]
    parts += [f'#include "{name}"' for name in files]
    if request.functions is None or unit.cuda:
        return {**files, unit.file: "\n".join(parts) + "\n"}
    if thin and unit.tabled:
        bound = ", ".join(
            f"kernelgym::bind({_quoted(name)}, {_quoted(doc)}, &{name})"
            for name, doc in request.functions
        )
        parts += [
            '#include "kernelgym_bind.h"',
            'extern "C" kernelgym::Table kernelgym_functions() {',
            f"  static const kernelgym::Function table[] = {{{bound}}};",
            f"  return {{table, {len(request.functions)}}};",
            "}",
        ]
    else:
        parts.append("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {")
        parts += [
            f"m.def({_quoted(name)}, torch::wrap_pybind_function({name}), {_quoted(doc)});"
            for name, doc in request.functions
        ]
        parts.append("}")
    return {**files, unit.file: "\n".join(parts) + "\n"}


def _file_name(number: int, suffix: str) -> str:
    return f"kernel{suffix}" if number == 0 else f"kernel_{number + 1}{suffix}"


def _quoted(text: str) -> str:
    escaped = "".join(
        char if char.isascii() and char.isprintable() and char not in '"\\?' else " "
        for char in text
    )
    return f'"{escaped}"'
