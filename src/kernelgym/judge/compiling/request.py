"""Checks the arguments of a candidate's request for an extension build.

Contract:

- the arguments come from untrusted code: their types are checked, and every flag must be on a list;
- the listed flags tune code generation, warnings, macros and standards. None of them loads a
  plug-in, writes another file or changes which programs the compiler drivers run;
- ``-I`` and ``-L`` of folders that the compiler searches anyway, and ``-l`` of torch's libraries,
  which every extension is linked to, are accepted and ignored;
- every text can be written to a file and passed to a program: it is bounded, valid UTF-8 and holds
  no NUL. Without that, writing it would raise in the worker, and the kernel would be unjudged.

Does not restrict include folders of nvcc: the sandbox decides which files a compiler can read.

Pure.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kernelgym.answers.screening.torch_use import without_comments

_MAX_SOURCE_BYTES = 4 << 20
_MOST_TEXTS = 1000
_LONGEST_FLAG = 4000
_UNWRITABLE = re.compile(r"[\x00\ud800-\udfff]")
_LONGEST_NAME = 200
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)

_MACRO = r"[A-Za-z_][A-Za-z0-9_]*(=[A-Za-z0-9_.+-]*)?"
_COMPILE_FLAG = re.compile(
    r"-(O([0-3sg]|fast)?|g\d?|w|pipe|pthread|std=(c|gnu)\+\+\w+|fopenmp(-simd)?|fPI[CE]|"
    # -fsyntax-only and the like succeed without an object file.
    r"f(no-)?(?!plugin|dump|profile|auto-profile|use|sanitize|syntax-only|preprocessed|compare-debug"
    r"|callgraph-info|save)[a-z0-9=-]+|"
    rf"m[a-z0-9=.,-]+|W(no-)?[a-z0-9=+-]+|[DU]{_MACRO})",
    re.ASCII,
)
_LINK_FLAG = re.compile(
    r"-(fopenmp|pthread|lgomp|lm|lpthread|lrt|ldl|lstdc\+\+|O[0-3]|s|shared|fPIC|march=[\w-]+)",
    re.ASCII,
)
_TORCH_LIBRARY = re.compile(r"-l(c10|torch|torch_cpu|torch_python)")
# Vendor libraries are allowed here: the evidence decides whether one did the work. `-L` folders are
# accepted but not used: `CudaToolkit.link_flag` finds the toolkit's libraries.
_CUDA_LINK_FLAG = re.compile(
    rf"{_LINK_FLAG.pattern}|-l(cuda|cudart|cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse|"
    r"nvrtc|c10_cuda|torch_cuda)|-L/[\w./+-]+",
    re.ASCII,
)

_NVCC_FLAG = re.compile(
    r"-(O[0-3]|g|G|w|m64|lineinfo|res-usage|"
    rf"[DU]{_MACRO}|I/[\w./+-]+)|"
    r"--?(use_fast_math|device-debug|generate-line-info|resource-usage|restrict|disable-warnings|"
    r"extra-device-vectorization|expt-(relaxed-constexpr|extended-lambda)|extended-lambda|"
    r"allow-unsupported-compiler|allow-expensive-optimizations|source-in-ptx|no-compress)"
)
# `--offload-arch` is accepted and not used: the compile tier's caller names the GPU.
_HIP_FLAG = re.compile(rf"{_COMPILE_FLAG.pattern}|--offload-arch=gfx[0-9a-f]+(:[a-z0-9+:-]+)?")
_HIP_LINK_FLAG = re.compile(
    rf"{_LINK_FLAG.pattern}|-l(amdhip64|(hip|roc)[a-z]+|c10_hip|torch_hip)|-L/[\w./+-]+"
)
_DEVICE_CODE = re.compile(r"\b__(global|device)__\b|<<<")
_ARCHITECTURE = r"(compute|sm|lto)_\d+[af]?"
_PTXAS_FLAG = re.compile(
    r"-(v|w|O[0-3]|lineinfo|dlcm=\w+|dscm=\w+|warn-spills|warn-lmem-usage)|"
    r"--?(verbose|disable-warnings|warn-on-[a-z-]+|fmad(=\w+)?|opt-level=[0-3]|"
    r"(def|force)-(load|store)-cache=\w+|allow-expensive-optimizations(=\w+)?|"
    r"maxrregcount=\d+|register-usage-level=\d+|return-at-end|suppress-[a-z-]+)"
)
_EDG_FLAG = re.compile(r"--?(diag_(suppress|warning|remark)=[\w,]+|display_error_number|w)")


def _words(allowed: re.Pattern[str]) -> Callable[[str], bool]:
    """Return a check for flags that list allowed words, separated by commas or blanks."""
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
# Of these the last one counts; without any of them, the last level of optimisation.
_FINITE = {"-ffast-math": True, "-ffinite-math-only": True, "-fno-fast-math": False}
_FINITE |= {"-fno-finite-math-only": False}
_LEVEL = re.compile(r"-O([0-3sgz]|fast)?")
# Options inside a C++ text, as GCC reads them: `#pragma GCC optimize("fast-math")`, and the
# attribute of that name on a function.
_OPTIMIZE = re.compile(r'\b(?:__)?optimize(?:__)?\s*\(?((?:\\?"[^"\n]*"|[\s,\d])*)')
_OPTION = re.compile(r'"([^"\\\n]*)')
_FINITE_OPTIONS = frozenset(("fast-math", "finite-math-only", "Ofast"))
_NAMES_ARCHITECTURE = ("-arch", "--gpu-a", "-gencode", "--generate-code", "-code", "--gpu-code")


class BadRequest(ValueError):
    """A candidate's request for a build is invalid or not allowed."""


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A checked request for one extension."""

    name: str
    cpp_sources: tuple[str, ...]
    cuda_sources: tuple[str, ...]
    functions: tuple[tuple[str, str], ...] | None
    """(name, doc) of the functions to bind; None if the source binds itself."""
    cflags: tuple[str, ...]
    cuda_cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    include_paths: tuple[str, ...]
    """Folders of a language's own headers."""
    implicit_headers: bool
    python_module: bool


def read_request(
    arguments: Any,
    cuda: bool = False,
    searched: Collection[str] = (),
    headers: Collection[str] = (),
    hip: bool = False,
) -> BuildRequest:
    """Return the checked request of an untrusted process.

    Args:
        arguments: The message of the process.
        cuda: Whether its device is a CUDA device.
        searched: Folders that the compiler searches for headers or libraries without being told.
        headers: Folders of further headers, with links resolved, that the request may name as
            ``include_paths``. Other folders that it names are left out.
        hip: Whether all sources are compiled as HIP.

    Raises:
        BadRequest: If the request is refused; the message is written for the kernel's author.
    """
    if not isinstance(arguments, dict):
        raise BadRequest("a build request must be an object")
    cuda_sources = _strings(arguments, "cuda_sources")
    if cuda_sources and not (cuda or hip):
        raise BadRequest("cuda_sources need a CUDA device; this one is a CPU: use cpp_sources")
    sources = _strings(arguments, "cpp_sources")
    if sum(map(len, [*sources, *cuda_sources])) > _MAX_SOURCE_BYTES:
        raise BadRequest(f"the sources are longer than {_MAX_SOURCE_BYTES} bytes")
    if hip:
        _check_compiled_by_hipcc(sources, str(arguments.get("cxx", "")))
    name = arguments.get("name")
    if not isinstance(name, str) or not _is_identifier(name):
        raise BadRequest(
            f"the extension's name must be an identifier of at most {_LONGEST_NAME} letters, "
            f"digits and underscores, not {name!r:.200}"
        )
    functions = arguments.get("functions")
    bound = None
    if functions is not None:
        if not isinstance(functions, dict):
            raise BadRequest("functions must map names to docstrings")
        if len(functions) > _MOST_TEXTS:
            raise BadRequest(f"functions names {len(functions)} functions; at most {_MOST_TEXTS}")
        bound = tuple((str(key), str(doc)) for key, doc in functions.items())
        for key, _ in bound:
            if not _is_identifier(key):
                raise BadRequest(
                    f"functions must be C++ identifiers of at most {_LONGEST_NAME} letters, digits "
                    f"and underscores, not {key!r:.200}"
                )
    link_flag = _HIP_LINK_FLAG if hip else _CUDA_LINK_FLAG if cuda else _LINK_FLAG
    return BuildRequest(
        name=name,
        cpp_sources=tuple(sources),
        cuda_sources=tuple(cuda_sources),
        functions=bound,
        cflags=_flags(arguments, "cflags", _COMPILE_FLAG, searched),
        cuda_cflags=_device_flags(arguments, hip, searched) if cuda_sources else (),
        ldflags=_flags(arguments, "ldflags", link_flag, searched),
        include_paths=tuple(
            folder
            for name in _strings(arguments, "include_paths")[:_MOST_TEXTS]
            if (folder := posixpath.realpath(name)) in headers
        ),
        implicit_headers=bool(arguments.get("implicit_headers", True)),
        python_module=bool(arguments.get("python_module", True)),
    )


def _check_compiled_by_hipcc(cpp_sources: list[str], compiler: str) -> None:
    """Raise if C++ sources hold device code and torch's compiler for them would not know HIP.

    Args:
        cpp_sources: The sources.
        compiler: The module's $CXX.
    """
    held = any(_DEVICE_CODE.search(without_comments(text)) for text in cpp_sources)
    if held and not re.search(r"hipcc|clang", compiler):
        raise BadRequest(
            f"cpp_sources hold device code, and torch compiles them with $CXX ({compiler or 'g++'})"
            ', which knows no HIP: set os.environ["CXX"] = "hipcc" before load_inline, or give '
            "the code as cuda_sources"
        )


def names_architecture(flags: tuple[str, ...]) -> bool:
    """Return True if nvcc flags choose the target architectures."""
    return any(flag.startswith(_NAMES_ARCHITECTURE) for flag in flags)


def assumes_finite(arguments: Any) -> bool:
    """Return True if a request lets the compiler assume finite numbers.

    Its flags may, and pragmas or attributes in its sources. nvcc's ``--use_fast_math`` does not: it
    flushes denormals, divides and takes roots approximately and fuses multiplications with
    additions, all of which keep a NaN.

    Args:
        arguments: The message of the process; need not be checked.
    """
    if not isinstance(arguments, dict):
        return False
    if any(_flags_assume(_texts(arguments, key)) for key in ("cflags", "cuda_cflags")):
        return True
    keys = ("cpp_sources", "cuda_sources")
    return any(_text_assumes(text) for key in keys for text in _texts(arguments, key))


def _texts(arguments: dict[str, Any], key: str) -> list[str]:
    found = arguments.get(key)
    return list(map(str, found)) if isinstance(found, list) else []


def _flags_assume(flags: list[str]) -> bool:
    level, said = "", None
    for word in re.split(r"[\s,='\"]+", " ".join(flags)):
        said = _FINITE.get(word, said)
        level = word if _LEVEL.fullmatch(word) else level
    return level == "-Ofast" if said is None else said


def _text_assumes(source: str) -> bool:
    """Return True if a pragma or attribute in a source lets compilers assume finite numbers."""
    if "optimize" not in source:
        return False
    for found in _OPTIMIZE.finditer(without_comments(source)):
        for text in _OPTION.findall(found[1]):
            options = (option.strip() for option in text.split(","))
            if any(option.removeprefix("-f") in _FINITE_OPTIONS for option in options):
                return True
    return False


def _is_identifier(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _IDENTIFIER.fullmatch(name) is not None


def _strings(arguments: Mapping[str, Any], key: str) -> list[str]:
    """Return the texts in a field of a build request, after checking that files can hold them."""
    value = arguments.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRequest(f"{key} must be a list of strings")
    if len(value) > _MOST_TEXTS:
        raise BadRequest(f"{key} holds {len(value)} texts; at most {_MOST_TEXTS} are allowed")
    for text in value:
        if (bad := _UNWRITABLE.search(text)) is not None:
            raise BadRequest(
                f"{key} holds the character {bad[0]!r}, which no compiler reads, after "
                f"{text[: bad.start()][-40:]!r}: remove it"
            )
    return list(value)


def _flags(
    arguments: Mapping[str, Any], key: str, allowed: re.Pattern[str], searched: Collection[str]
) -> tuple[str, ...]:
    """Return the compiler flags in a field of a build request; those without effect left out."""
    kept = []
    words = iter([flag for text in _strings(arguments, key) for flag in text.split()])
    for word in words:
        if len(word) > _LONGEST_FLAG:
            raise BadRequest(f"a flag in {key} is longer than {_LONGEST_FLAG} characters")
        if word[:2] == ("-L" if key == "ldflags" else "-I"):
            folder = word[2:] or next(words, "")
            if not folder.startswith("/") or posixpath.normpath(folder) not in searched:
                if key == "ldflags" and allowed.fullmatch(word):
                    kept.append(word)
                    continue
                raise BadRequest(
                    f"the folder {folder!r:.200} of {word[:2]} in {key} is not allowed: the "
                    "compiler searches only its own folders, torch's and Python's, without being "
                    "told; write what is missing into the source"
                )
        elif key == "ldflags" and _TORCH_LIBRARY.fullmatch(word):
            continue  # every extension is linked to it
        elif allowed.fullmatch(word):
            kept.append(word)
        else:
            raise _not_allowed(word, key)
    if sum(map(len, kept)) > _LONGEST_FLAG * 8:
        raise BadRequest(f"the flags in {key} are longer than {_LONGEST_FLAG * 8} characters")
    return tuple(kept)


def _device_flags(
    arguments: Mapping[str, Any], hip: bool, searched: Collection[str]
) -> tuple[str, ...]:
    """Return the flags for device code in a build request, after checking them."""
    if not hip:
        return nvcc_flags(arguments, "cuda_cflags")
    flags = _flags(arguments, "cuda_cflags", _HIP_FLAG, searched)
    return tuple(flag for flag in flags if not flag.startswith("--offload-arch"))


def nvcc_flags(arguments: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a request's nvcc flags, checked, each joined with its value.

    Args:
        arguments: The message of an untrusted process.
        key: Name of the field that holds the flags.

    Raises:
        BadRequest: If one is not allowed.
    """
    try:  # torch passes the flags to a shell, so authors quote them
        words = [word for text in _strings(arguments, key) for word in shlex.split(text)]
    except ValueError as error:
        raise BadRequest(f"the flags in {key} cannot be split: {error}") from None
    if sum(map(len, words)) > _LONGEST_FLAG * 8:
        raise BadRequest(f"the flags in {key} are longer than {_LONGEST_FLAG * 8} characters")
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
