"""From the arguments of `load_inline` to the text that is compiled.

Pure, except for look-ups of which headers torch ships.

Names in the source decide which headers it is given: ``torch::empty_like`` brings
``ATen/ops/empty_like.h``, ``at::parallel_for`` brings ``ATen/Parallel.h``.
"""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "BINDING_UNIT",
    "THIN_HEADERS",
    "UNIT",
    "BadRequest",
    "Request",
    "can_be_thin",
    "compile_flags",
    "compose",
    "missing_from_thin",
    "module_name",
    "needed_header",
    "read_request",
]

UNIT = "unit.cpp"
THIN_HEADERS = Path(__file__).with_name("thin")
BINDING_UNIT = THIN_HEADERS / "binding.cpp"
_MAX_SOURCE_BYTES = 4 << 20

# Flags that tune code generation, warnings, macros and standard libraries. Nothing that loads
# plug-ins, reads other files or changes which programs the compiler driver runs.
_COMPILE_FLAG = re.compile(
    r"-(O([0-3sg]|fast)?|g\d?|w|pipe|pthread|std=(c|gnu)\+\+\w+|fopenmp(-simd)?|"
    r"f(no-)?(?!plugin|dump|profile|auto-profile|use|sanitize)[a-z0-9=-]+|"
    r"m[a-z0-9=.,-]+|W(no-)?[a-z0-9=+-]+|[DU][A-Za-z_]\w*(=[\w.+-]*)?)"
)
_LINK_FLAG = re.compile(
    r"-(fopenmp|pthread|lgomp|lm|lpthread|lrt|ldl|lstdc\+\+|O[0-3]|s|shared|fPIC|march=[\w-]+)"
)
# Kernels name the standards that torch once wanted. Its headers need C++17, the thin ones C++20.
_OLD_STANDARD = {
    thin: re.compile(rf"-std=(c|gnu)\+\+(98|03|0x|11|1y|14{'|1z|17' if thin else ''})")
    for thin in (False, True)
}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

# Names outside ATen/ops whose header has another name.
_HEADERS = {
    "AT_DISPATCH_": "ATen/Dispatch.h",
    "parallel_for": "ATen/Parallel.h",
    "parallel_reduce": "ATen/Parallel.h",
    "get_num_threads": "ATen/Parallel.h",
    "get_thread_num": "ATen/Parallel.h",
    "NoGradGuard": "c10/core/GradMode.h",
    "indexing": "ATen/TensorIndexing.h",
    "Slice": "ATen/TensorIndexing.h",
    "vec": "ATen/cpu/vec/vec.h",
    "Scalar": "c10/core/Scalar.h",
    "opmath_type": "ATen/OpMathType.h",
    "acc_type": "ATen/AccumulateType.h",
}


class BadRequest(ValueError):
    """A candidate asked for a build that is not allowed or makes no sense."""


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request for one extension."""

    name: str
    cpp_sources: tuple[str, ...]
    functions: tuple[tuple[str, str], ...] | None
    """(name, doc) of the functions to bind; None if the source binds itself."""
    cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    implicit_headers: bool
    python_module: bool


def read_request(arguments: Any) -> Request:
    """Check what an untrusted process sent.

    Raises:
        BadRequest: With a sentence for the kernel's author.
    """
    if not isinstance(arguments, dict):
        raise BadRequest("a build request must be an object")
    if _strings(arguments, "cuda_sources"):
        raise BadRequest("cuda_sources need a CUDA device; this one is a CPU: use cpp_sources")
    sources = _strings(arguments, "cpp_sources")
    if sum(map(len, sources)) > _MAX_SOURCE_BYTES:
        raise BadRequest(f"the sources are longer than {_MAX_SOURCE_BYTES} bytes")
    name = arguments.get("name")
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or len(name) > 200:
        raise BadRequest(f"the extension's name must be a Python identifier, not {name!r:.200}")
    functions = arguments.get("functions")
    bound = None
    if functions is not None:
        if not isinstance(functions, dict):
            raise BadRequest("functions must map names to docstrings")
        bound = tuple((str(key), str(doc)) for key, doc in functions.items())
        for key, _ in bound:
            if not _IDENTIFIER.fullmatch(key):
                raise BadRequest(f"functions must be C++ identifiers, not {key!r:.200}")
    return Request(
        name=name,
        cpp_sources=tuple(sources),
        functions=bound,
        cflags=_flags(arguments, "cflags", _COMPILE_FLAG),
        ldflags=_flags(arguments, "ldflags", _LINK_FLAG),
        implicit_headers=bool(arguments.get("implicit_headers", True)),
        python_module=bool(arguments.get("python_module", True)),
    )


def _strings(arguments: dict[str, Any], key: str) -> list[str]:
    value = arguments.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRequest(f"{key} must be a list of strings")
    return list(value)


def _flags(arguments: dict[str, Any], key: str, allowed: re.Pattern[str]) -> tuple[str, ...]:
    flags = [flag for text in _strings(arguments, key) for flag in text.split()]
    for flag in flags:
        if not allowed.fullmatch(flag):
            raise BadRequest(f"compiler flag {flag!r:.200} is not allowed in {key}")
    return tuple(flags)


def can_be_thin(request: Request) -> bool:
    """Say whether the functions are bound by us, so that pybind11 need not be compiled."""
    return request.functions is not None and request.implicit_headers


def module_name(request: Request, thin: bool) -> str:
    """Name under which Python imports the library."""
    return "kernelgym_extension" if thin else request.name


def compile_flags(request: Request, thin: bool) -> tuple[str, ...]:
    """Return the candidate's flags for the compiler, without a standard the headers are past."""
    old = _OLD_STANDARD[thin]
    return tuple(
        f"-std={match[1]}++20" if (match := old.fullmatch(flag)) else flag
        for flag in request.cflags
    )


def compose(request: Request, thin: bool) -> dict[str, str]:
    """Return the files to compile, by name; `UNIT` includes the others.

    Each of the candidate's texts is a file of its own, unchanged, so that the compiler's line
    numbers are those its author knows.
    """
    files = {_file_name(number): text for number, text in enumerate(request.cpp_sources)}
    parts = ["#include <torch/extension.h>"] if request.implicit_headers else []
    parts += [f'#include "{name}"' for name in files]
    if request.functions is None:
        return {**files, UNIT: "\n".join(parts) + "\n"}
    if thin:
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
    return {**files, UNIT: "\n".join(parts) + "\n"}


def _file_name(number: int) -> str:
    return "kernel.cpp" if number == 0 else f"kernel_{number + 1}.cpp"


def _quoted(text: str) -> str:
    escaped = "".join(
        char if char.isascii() and char.isprintable() and char not in '"\\?' else " "
        for char in text
    )
    return f'"{escaped}"'


def needed_header(request: Request) -> str:
    """Return the includes that the names in the source call for."""
    text = "\n".join(request.cpp_sources)
    words = set(_IDENTIFIER.findall(text))
    wanted = {
        header
        for name, header in _HEADERS.items()
        if (name in words if not name.endswith("_") else name in text)
    }
    unqualified = re.search(r"using\s+namespace\s+(torch|at)\b|using\s+(torch|at)::", text)
    named = words if unqualified else set(re.findall(r"\b(?:torch|at)::(\w+)", text))
    wanted |= {f"ATen/ops/{name}.h" for name in named & _operator_headers()}
    return "#pragma once\n" + "".join(f"#include <{header}>\n" for header in sorted(wanted))


@functools.lru_cache(maxsize=1)
def _operator_headers() -> frozenset[str]:
    import torch

    folder = Path(torch.__file__).parent / "include" / "ATen" / "ops"
    return frozenset(path.stem for path in folder.glob("*.h"))


# The log may quote a hostile source. Every piece below is possessive and ends at a quote, so a
# line is searched in linear time; lines and their number are bounded besides.
_NOT_A_MEMBER = re.compile(
    r"[‘'](\w++)[^‘’']*+[’'] is not a member of [‘'](?:torch|at|c10|pybind11|py)\b|"
    r"[‘'](\w++)[^‘’']*+[’'] in namespace [‘'](?:torch|at|c10|pybind11|py)\b"
)
_UNDECLARED = re.compile(
    r"[‘'](?:torch::|at::|c10::)?+(\w++)[^‘’']*+[’'] "
    r"(?:was not declared|has not been declared|does not name a type|is not a class)"
)
_NEEDS_A_FILE = re.compile(r"(?:torch|ATen|c10|pybind11)/")
_SIGNS_OF_REAL_HEADERS = (
    "incomplete type",
    "expected constructor, destructor, or type conversion before",
)
_ERROR_LINES, _ERROR_CHARACTERS = 300, 500


def missing_from_thin(log: str) -> bool:
    """Say whether the errors could go away with torch's real headers.

    True if an undeclared name occurs in torch's headers, or a type cannot be bound without
    pybind11; false for an ordinary mistake, which must not be compiled twice.
    """
    if "is defined in header" in log:
        return True
    lines = (line[:_ERROR_CHARACTERS] for line in log.splitlines() if "error:" in line)
    names: set[str] = set()
    for line in itertools.islice(lines, _ERROR_LINES):
        kind, _, text = line.partition("error: ")
        if "kernelgym::Kind<" in line or any(sign in text for sign in _SIGNS_OF_REAL_HEADERS):
            return True
        if kind.endswith("fatal ") and _NEEDS_A_FILE.search(text):
            return True
        names.update(first or second for first, second in _NOT_A_MEMBER.findall(line))
        # A name without a namespace is torch's only if it is a macro, or pybind11's own
        # namespace; anything else is a slip, however common a word it is in torch's headers.
        bare = _UNDECLARED.findall(line)
        names.update(name for name in bare if name.isupper() or name in _NAMESPACES)
    return not names.isdisjoint(_torch_words())


_NAMESPACES = frozenset({"py", "pybind11", "torch", "at", "c10", "nn", "autograd"})


@functools.lru_cache(maxsize=1)
def _torch_words() -> frozenset[str]:
    """Names that torch's C++ front end and its pybind11 headers declare."""
    import torch

    include = Path(torch.__file__).parent / "include"
    folders = ("torch/csrc/api/include", "torch/csrc/utils", "torch/csrc/autograd", "pybind11")
    paths = [path for folder in folders for path in (include / folder).rglob("*.h")]
    paths += [*include.glob("ATen/*.h"), *include.glob("c10/*/*.h"), *include.glob("torch/*.h")]
    words: set[str] = set()
    for path in paths:
        words.update(_IDENTIFIER.findall(path.read_text(errors="replace")))
    return frozenset(words)
