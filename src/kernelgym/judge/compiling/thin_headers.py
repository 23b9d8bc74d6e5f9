"""Chooses the thin headers that a unit is compiled against in place of all of torch's.

Names in the source decide: ``torch::empty_like`` adds ``ATen/ops/empty_like.h``, ``x.relu()`` keeps
that method of the tensor, ``at::parallel_for`` adds ``ATen/Parallel.h``, and a word that contains
"complex" adds the functions of complex numbers. The files in the folder ``thin`` replace torch's
headers that include everything else. Macros switch the parts that they leave out on again.

The worker runs this, not the sandboxed compiler, because it keeps the facts about torch's headers:
reading some 700 of them for every build would cost more than compiling most kernels. So no name
of a candidate's is ever opened (`kernelgym.judge.compiling.include_names`).

Does not preprocess: a name in a comment counts, and a name that a macro puts together does not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernelgym.judge.compiling.include_names import Headers, included_names
from kernelgym.judge.compiling.tensor_header import TENSOR_BODY, tensor_body

__all__ = ["THIN_HEADERS", "ThinHeaders", "thin_headers"]

THIN_HEADERS = Path(__file__).with_name("thin")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_CALL = re.compile(r"(?:\.|->)\s*(\w+)\s*\(")

# Headers of names that are not operators, and therefore have no header under ATen/ops.
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
    "PYBIND11_": "torch/csrc/utils/pybind.h",
    "pybind11": "torch/csrc/utils/pybind.h",
    "py": "torch/csrc/utils/pybind.h",
    "TORCH_LIBRARY": "torch/library.h",
}
# Each macro switches on a part that the files in `thin` leave out. It is set if one of these
# patterns occurs in a source...
_IN_SOURCES = {
    # Complex numbers, CCCL, and the small floating-point types that only CCCL declares.
    "KERNELGYM_COMPLEX": re.compile(
        r"complex|thrust|\bcub\b|cccl|cutlass|\bcute\b|libcu|\bfp[468]|_fp[468]|\bNV_|"
        r"(?<!at::)(?<!c10::)\bcuda::",
        re.I,
    ),
    "KERNELGYM_CONTEXT": re.compile(
        r"\b(globalContext|Context|getCPUAllocator|getDeprecatedTypeProperties|getNumGPUs|"
        r"manual_seed|has[A-Z]\w+|NoTF32Guard|CPUGeneratorImpl|get\w*Hooks|\w+HooksInterface|"
        r"getAccelerator|(Blas|Linalg|SDP|ROCmFA)Backend|Float32\w+)\b"
    ),
    "KERNELGYM_CUDA_LIBRARIES": re.compile(
        r"cublas|cusparse|cusolver|cudnn|(Blas|Sparse|Dn|Lt)(Handle|Workspace)|getCUDADeviceAlloc",
        re.I,
    ),
}
# ... or one of these in another header of torch.
_IN_HEADERS = {
    "KERNELGYM_COMPLEX": re.compile(r"#\s*include\s*<(thrust/(?!complex\.h)|cub/)"),
    "KERNELGYM_CONTEXT": re.compile(r"\bglobalContext\b"),
    "KERNELGYM_CUDA_LIBRARIES": re.compile(r"cublas|cusparse|cusolver"),
}
_ENTRY = "torch/extension.h"
_TENSOR = "kernelgym_tensor.h"


@dataclass(frozen=True, slots=True)
class ThinHeaders:
    """Headers and macros for one unit."""

    files: dict[str, str]
    """Generated headers by path; the compiler searches for them after those in ``thin``."""
    macros: tuple[str, ...]


def thin_headers(sources: tuple[str, ...], include: Path) -> ThinHeaders:
    """Return the headers and macros that sources need besides `THIN_HEADERS`.

    Args:
        sources: The candidate's texts.
        include: torch's folder of headers.
    """
    text = "\n".join(sources)
    words = frozenset(_IDENTIFIER.findall(text))
    needed = _needed(text, words, include)
    included = included_names(text)
    reach = _reach(include, included | needed | {_ENTRY})
    files = {"kernelgym_needed.h": "#pragma once\n" + _lines(needed)}
    if (body := tensor_body(include, words | reach.called)) is not None:
        files[TENSOR_BODY] = body
    elsewhere = any("/" in name and name not in reach.read for name in included)
    macros = set(reach.macros).union(
        macro for macro, pattern in _IN_SOURCES.items() if pattern.search(text)
    )
    if elsewhere:
        macros.add("KERNELGYM_COMPLEX")
    return ThinHeaders(files, tuple(f"-D{macro}" for macro in sorted(macros)))


def _needed(text: str, words: frozenset[str], include: Path) -> frozenset[str]:
    """Return the headers that declare the names in the sources."""
    wanted = {
        header
        for name, header in _HEADERS.items()
        if (name in words if not name.endswith("_") else name in text)
    }
    unqualified = re.search(r"using\s+namespace\s+(torch|at)\b|using\s+(torch|at)::", text)
    named = words if unqualified else set(re.findall(r"\b(?:torch|at)::(\w+)", text))
    operators = named & _operator_headers(include)
    wanted |= {f"ATen/ops/{name}.h" for name in operators}
    if "tensor" in operators:
        wanted.add(_TENSOR)
    if any("ITensorListRef" in _text(include / f"ATen/ops/{name}.h") for name in operators):
        wanted.add("ATen/core/IListRef.h")  # the operators' headers declare the type only
    return frozenset(wanted)


@functools.lru_cache(maxsize=4096)
def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def _lines(headers: Iterable[str]) -> str:
    return "".join(f"#include <{header}>\n" for header in sorted(headers))


@functools.lru_cache(maxsize=2)
def _operator_headers(include: Path) -> frozenset[str]:
    return frozenset(path.stem for path in (include / "ATen/ops").glob("*.h"))


@dataclass(frozen=True, slots=True)
class _Reach:
    """Facts about one header, or about several and all they include."""

    called: frozenset[str]
    """Names called as methods."""
    read: frozenset[str]
    included: frozenset[str]
    macros: frozenset[str]


def _reach(include: Path, headers: Iterable[str]) -> _Reach:
    """Return the facts about headers and their includes, `thin`'s files first."""
    seen = set(headers)
    waiting = list(seen)
    found: list[_Reach] = []
    while waiting:
        found.append(one := _read_header(include, waiting.pop()))
        waiting += one.included - seen
        seen |= one.included
    return _Reach(
        called=frozenset().union(*(one.called for one in found)),
        read=frozenset().union(*(one.read for one in found)),
        included=frozenset(seen),
        macros=frozenset().union(*(one.macros for one in found)),
    )


@functools.lru_cache(maxsize=8192)
def _read_header(include: Path, name: str) -> _Reach:
    """Return the facts about one header, empty if it is missing."""
    headers = Headers((THIN_HEADERS, include, include / "torch/csrc/api/include"))
    found = headers.find(name)
    if found is None:
        return _Reach(frozenset(), frozenset(), frozenset(), frozenset())
    folder, text = found
    included = included_names(text) - {"ATen/MethodOperators.h"}
    if "AT_PER_OPERATOR_HEADERS" in text:  # which the thin entry defines
        included -= {"ATen/Functions.h"}
    called = frozenset(_CALL.findall(text))
    named = {macro for macro, pattern in _IN_HEADERS.items() if pattern.search(text)}
    # These leave parts out on purpose, so they must not switch them on again.
    if folder == THIN_HEADERS or name == TENSOR_BODY:
        named = set()
        called = frozenset() if name == TENSOR_BODY else called
    return _Reach(called, frozenset({name}), included, frozenset(named))
