"""Checks the arguments of a candidate's request for an extension build.

Contract:

- the arguments come from untrusted code: their types are checked, and every flag must be on a list;
- the listed flags tune code generation, warnings, macros and standards. None of them loads a
  plug-in, writes another file or changes which programs the compiler drivers run.

Does not restrict include folders: the sandbox decides which files a compiler can read.

Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["BadRequest", "Request", "names_architecture", "read_request"]

_MAX_SOURCE_BYTES = 4 << 20
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

_MACRO = r"[A-Za-z_]\w*(=[\w.+-]*)?"
_COMPILE_FLAG = re.compile(
    r"-(O([0-3sg]|fast)?|g\d?|w|pipe|pthread|std=(c|gnu)\+\+\w+|fopenmp(-simd)?|fPI[CE]|"
    r"f(no-)?(?!plugin|dump|profile|auto-profile|use|sanitize)[a-z0-9=-]+|"
    rf"m[a-z0-9=.,-]+|W(no-)?[a-z0-9=+-]+|[DU]{_MACRO})"
)
_LINK_FLAG = re.compile(
    r"-(fopenmp|pthread|lgomp|lm|lpthread|lrt|ldl|lstdc\+\+|O[0-3]|s|shared|fPIC|march=[\w-]+)"
)
# Vendor libraries are allowed here: the evidence decides whether one did the work. `-L` folders are
# accepted but not used: `CudaToolkit.link_flag` finds the toolkit's libraries.
_CUDA_LINK_FLAG = re.compile(
    rf"{_LINK_FLAG.pattern}|-l(cuda|cudart|cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse|"
    r"nvrtc|c10|c10_cuda|torch|torch_cpu|torch_cuda|torch_python)|-L/[\w./+-]+"
)

_NVCC_FLAG = re.compile(
    r"-(O[0-3]|g|G|w|m64|lineinfo|res-usage|"
    rf"[DU]{_MACRO}|I/[\w./+-]+)|"
    r"--?(use_fast_math|device-debug|generate-line-info|resource-usage|restrict|disable-warnings|"
    r"extra-device-vectorization|expt-(relaxed-constexpr|extended-lambda)|extended-lambda|"
    r"allow-unsupported-compiler|allow-expensive-optimizations|source-in-ptx|no-compress)"
)
_ARCHITECTURE = r"(compute|sm|lto)_\d+[af]?"
_PTXAS_FLAG = re.compile(
    r"-(v|w|O[0-3]|lineinfo|dlcm=\w+|dscm=\w+|warn-spills|warn-lmem-usage)|"
    r"--?(verbose|disable-warnings|warn-on-[a-z-]+|fmad(=\w+)?|opt-level=[0-3]|"
    r"(def|force)-(load|store)-cache=\w+|allow-expensive-optimizations(=\w+)?|"
    r"maxrregcount=\d+|register-usage-level=\d+|return-at-end|suppress-[a-z-]+)"
)
_EDG_FLAG = re.compile(r"--?(diag_(suppress|warning|remark)=[\w,]+|display_error_number|w)")


def _words(allowed: re.Pattern[str]) -> Callable[[str], bool]:
    """Return a check that accepts allowed flags, separated by commas or blanks."""
    return lambda value: all(allowed.fullmatch(word) for word in re.split(r"[,\s]+", value) if word)


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda value: compiled.fullmatch(value) is not None


_ONE_ARCHITECTURE = _matches(rf"{_ARCHITECTURE}|native")
_PAIRS = _matches(rf"arch=compute_\d+[af]?,code=(\[?\"?{_ARCHITECTURE}(,{_ARCHITECTURE})*\"?\]?)")
_SWITCH = _matches("true|false|0|1")
_NUMBER = _matches(r"\d{1,3}")
# nvcc's flags with a value, after "=" or as the next word, and the check of the value.
_NVCC_VALUED: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(("-arch", "--gpu-architecture"), _ONE_ARCHITECTURE),
    **dict.fromkeys(("-code", "--gpu-code"), _matches(rf"{_ARCHITECTURE}(,{_ARCHITECTURE})*")),
    **dict.fromkeys(("-gencode", "--generate-code"), _PAIRS),
    **dict.fromkeys(("-std", "--std"), _matches(r"(c|gnu)\+\+\w+")),
    **dict.fromkeys(("-maxrregcount", "--maxrregcount"), _NUMBER),
    **dict.fromkeys(("-t", "--threads", "-split-compile", "--split-compile"), _NUMBER),
    **dict.fromkeys(("-ftz", "--ftz", "-fmad", "--fmad"), _SWITCH),
    **dict.fromkeys(("-prec-div", "--prec-div", "-prec-sqrt", "--prec-sqrt"), _SWITCH),
    **dict.fromkeys(("-O", "--optimize"), _matches("[0-3]")),
    **dict.fromkeys(("-m", "--machine"), _matches("64")),
    **dict.fromkeys(("-default-stream", "--default-stream"), _matches("legacy|null|per-thread")),
    **dict.fromkeys(("-D", "-U"), _matches(_MACRO)),
    **dict.fromkeys(("-Xptxas", "--ptxas-options"), _words(_PTXAS_FLAG)),
    **dict.fromkeys(("-Xcompiler", "--compiler-options"), _words(_COMPILE_FLAG)),
    **dict.fromkeys(("-Xcudafe", "--cudafe-options"), _words(_EDG_FLAG)),
    **dict.fromkeys(("-diag-suppress", "--diag-suppress"), _matches(r"\d+(,\d+)*")),
}
_NAMES_ARCHITECTURE = ("-arch", "--gpu-a", "-gencode", "--generate-code", "-code", "--gpu-code")


class BadRequest(ValueError):
    """A candidate's request for a build is invalid or not allowed."""


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request for one extension."""

    name: str
    cpp_sources: tuple[str, ...]
    cuda_sources: tuple[str, ...]
    functions: tuple[tuple[str, str], ...] | None
    """(name, doc) of the functions to bind; None if the source binds itself."""
    cflags: tuple[str, ...]
    cuda_cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    implicit_headers: bool
    python_module: bool


def read_request(arguments: Any, cuda: bool = False) -> Request:
    """Return the checked request of an untrusted process.

    Args:
        arguments: The message of the process.
        cuda: Whether its device is a CUDA device.

    Raises:
        BadRequest: If the request is refused; the message is written for the kernel's author.
    """
    if not isinstance(arguments, dict):
        raise BadRequest("a build request must be an object")
    cuda_sources = _strings(arguments, "cuda_sources")
    if cuda_sources and not cuda:
        raise BadRequest("cuda_sources need a CUDA device; this one is a CPU: use cpp_sources")
    sources = _strings(arguments, "cpp_sources")
    if sum(map(len, [*sources, *cuda_sources])) > _MAX_SOURCE_BYTES:
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
        cuda_sources=tuple(cuda_sources),
        functions=bound,
        cflags=_flags(arguments, "cflags", _COMPILE_FLAG),
        cuda_cflags=_nvcc_flags(arguments) if cuda_sources else (),
        ldflags=_flags(arguments, "ldflags", _CUDA_LINK_FLAG if cuda else _LINK_FLAG),
        implicit_headers=bool(arguments.get("implicit_headers", True)),
        python_module=bool(arguments.get("python_module", True)),
    )


def names_architecture(flags: tuple[str, ...]) -> bool:
    """Return True if nvcc flags choose the target architectures."""
    return any(flag.startswith(_NAMES_ARCHITECTURE) for flag in flags)


def _strings(arguments: dict[str, Any], key: str) -> list[str]:
    value = arguments.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRequest(f"{key} must be a list of strings")
    return list(value)


def _flags(arguments: dict[str, Any], key: str, allowed: re.Pattern[str]) -> tuple[str, ...]:
    flags = [flag for text in _strings(arguments, key) for flag in text.split()]
    for flag in flags:
        if not allowed.fullmatch(flag):
            raise _not_allowed(flag, key)
    return tuple(flags)


def _nvcc_flags(arguments: dict[str, Any]) -> tuple[str, ...]:
    """Return the checked nvcc flags, each joined with its value."""
    key = "cuda_cflags"
    try:  # torch passes the flags to a shell, so authors quote them
        words = [word for text in _strings(arguments, key) for word in shlex.split(text)]
    except ValueError as error:
        raise BadRequest(f"the flags in {key} cannot be split: {error}") from None
    checked: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if _NVCC_FLAG.fullmatch(word):
            checked.append(word)
            continue
        name, equals, value = word.partition("=")
        if name not in _NVCC_VALUED:
            raise _not_allowed(word, key)
        if not equals:
            value = next(remaining, "")
        if not value or not _NVCC_VALUED[name](value):
            raise _not_allowed(f"{name} {value}", key)
        checked.append(f"{name}={value}" if name not in ("-D", "-U") else name + value)
    return tuple(checked)


def _not_allowed(flag: str, key: str) -> BadRequest:
    return BadRequest(f"compiler flag {flag!r:.200} is not allowed in {key}")
