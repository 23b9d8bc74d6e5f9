"""Finds the work that an extension leaves to other libraries, from the symbols that it imports.

Evidence watches torch's dispatcher. An extension can get work done without the dispatcher: it can
call torch's CPU functions directly, use the BLAS inside torch's library, or run operators in a
thread of its own. No torch mode sees that work, and the extension's function would pass for a
custom kernel. But the library has to name the functions that it calls. So this module reads the
name of every undefined symbol that a relocation refers to. It does not need the tables that
linkers and strip may leave out.

Symbols do not say in which thread an operator runs, nor what hides it from dispatch modes. That is
judged by what the extension does: the watched call is recorded in all threads
(`untrusted/watch/records.py`). So here are named the ways to keep such records from being made.

Does not:

- run or load the library;
- see code that is linked into the library, or functions called by address;
- stop an extension with a loader of its own. This is a policy for models that take the easy way.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

from kernelgym.types import Finding, Severity

RULES = 9
"""Version of these rules; part of a library's key, so that no old findings are served."""
_MOST_NAMED = 4

_NAMED = re.compile(r"_ZNK?(?=\d)")
_BLAS = re.compile(
    r"cblas_|LAPACKE_|openblas_|dnnl_|xnn_|nnp_|pytorch_q|fftwf?_|mkl(_|g[A-Z])|Dfti[A-Z]|dfti_"
    r"|i?[sdcz][a-z0-9_]{2,24}(_|_64)$|[sdcz]?gemm\w*$"
    r"|[sdcz](gemv|symm|symv|syrk|trsm|trmm|dot[cu]?|axpy|ger|scal)$"
    r"|[sdcz](ge|sy|he|po|or|un)(ev|evd|lsd?|lss|lsy|qrf|sdd|svd|trf|trs|tri|gqr|mqr)$"
    r"|vm?[sdcz]([A-Z]|(log|exp|a?sin|a?cos|a?tan|sqrt|erf|pow|inv|div|mul|add|sub|ln|cbrt)\w*$)"
)
# Fortran's names in capitals: no other library of an extension has such.
_MKL = re.compile(r"MKL_|I?[SDCZ][A-Z0-9_]{3,24}$|V[MSDCZ][A-Z0-9_]+$|GEMM_\w+$")
_DEVICE_LIBRARY = re.compile(
    r"(cublas(Lt|Xt)?|cudnn|cufft(Xt)?|cusolver(Dn|Sp|Rf)?|cusparse|cutensor)(?=[A-Z])"
    r"(?!(Create|Destroy|Get|Set|Init)[A-Z_]?)"
)
_LAUNCH = re.compile(r"(__)?cu(da)?Launch(Cooperative)?Kernel")
_LOADER = frozenset(("dlopen", "dlmopen", "dlsym", "dlvsym", "uv_dlopen", "uv_dlsym"))
# pybind11/numpy.h imports NumPy inline; plain pybind11 imports nothing.
_IMPORT = (
    *("PyImport_Import", "PyImport_GetModule", "PyImport_AddModule", "PyCapsule_Import"),
    *("PySys_GetObject", "PyRun_", "Py_CompileString", "PyEval_EvalCode"),
    *("PyNumber_MatrixMultiply", "PyNumber_InPlaceMatrixMultiply"),
)
# AOTInductor's functions in C: they call torch's CPU functions past the dispatcher. Those that read
# or make a tensor, its shape or its memory compute nothing, and `call_dispatcher` is counted.
_SHIM = re.compile(r"aoti_torch_")
_PLAIN_SHIM = re.compile(
    r"aoti_torch_(aten_)?(get|item|scalar|dtype|layout|device|memory_format|delete|create|new|empty"
    r"|is|check|warn|assign|as_strided|_?alloc|zero|full|narrow|view|tensor|clone|copy|grad_mode"
    r"|print|save|str|strlist|stream|current|set|abi|int64|_?reinterpret|library|call_dispatcher)"
    r"(_\w*)?$"
)
# Operators that create, view or copy tensors, but compute nothing.
_PLAIN = re.compile(
    r"(empty|zeros?|ones?|full|new|view|reshape|expand|_?to|_to_copy|copy|clone|contiguous|permute"
    r"|transpose|t|slice|select|narrow|squeeze|unsqueeze|flatten|unflatten|detach|alias|as_strided"
    r"|fill|item|_local_scalar_dense|chunk|split|unbind|resize|set|size|stride|numel|is|arange"
    r"|scalar_tensor|resolve|lift|record_stream)"
    r"(_.*)?$|can_?[uU]se_?32.*|result_type.*|to[A-Z].*"
)
_COMPUTES = ("at::native::", "at::cuda::blas::", "at::cuda::solver::", "at::cuda::sparse::")
_STATIC = ("at::cpu::", "at::cuda::", "at::compositeexplicitautograd::", "at::mkldnn::")
_OTHER_CODE = (
    *("dnnl::", "ideep::", "fbgemm::", "oneapi::mkl::", "at::DynamicLibrary"),
    *("c10::DynamicLibrary", "torch::jit::StaticModule", "torch::jit::StaticRuntime"),
    "torch::jit::tensorexpr::",
)
# Without ExcludeDispatchKeyGuard: torch's headers use it inline, as in `torch::empty`, so honest
# extensions need it too. The functions on records of calls switch off what watches all threads, or
# have torch call the extension inside of an operator, as allocators do: its work is then torch's.
_UNWATCHED = (
    *("c10::impl::tls_set_dispatch_key_", "c10::impl::TorchDispatchModeTLS::"),
    *("at::enableRecordFunction", "at::set_record_function_tls_", "at::clearCallbacks"),
    *("at::clearGlobalCallbacks", "at::removeCallback", "at::disableCallback"),
    *("at::addGlobalCallback", "at::addThreadLocalCallback", "c10::SetAllocator"),
    *("torch::cuda::CUDAPluggableAllocator::", "c10::WarningUtils::set_warning_handler"),
    *("torch::autograd::profiler::", "torch::profiler::", "libkineto::"),
)
# These take another thread's state, or make one up: operators then run with no mode on.
_STATES = (
    *("at::ThreadLocalState", "c10::impl::_force_tls_local_dispatch_key_set"),
    "torch::torch_dispatch_mode::",
)
# What they find is called past the judge's records by `redispatch`, which is inline.
_DISPATCHER = ("c10::Dispatcher::findSchema", "c10::Dispatcher::findOp")
# These hand out the kernels of operators, which are then called past the dispatcher and records.
_KERNELS_OF = ("getComputedKernelForDispatchKey", "getKernelForDispatchKey", "SafeKernelFunction")


@dataclass(frozen=True, slots=True)
class LibraryWork:
    """Functions of other libraries that an extension calls to do its work."""

    hidden: tuple[str, ...] = ()
    """Names of called functions whose work evidence cannot see."""
    beside: tuple[str, ...] = ()
    """Names of called functions of NVIDIA's libraries, in an extension with kernels of its own."""

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings for a verdict, a hard one first."""
        found = []
        if self.hidden:
            message = (
                f"the extension leaves work to code that is not its own ({_listed(self.hidden)}), "
                "out of sight of the judge: write that computation in the extension, or call "
                "torch's operators through at:: in the calling thread, where they are counted"
            )
            found.append(Finding("hidden_library_work", message, Severity.HARD))
        if self.beside:
            message = f"the extension calls NVIDIA's libraries ({_listed(self.beside)})"
            found.append(Finding("library_work", message, Severity.SOFT))
        return tuple(found)

    def __or__(self, other: LibraryWork) -> LibraryWork:
        """Return the calls of both libraries together."""
        return LibraryWork(
            *(
                tuple(dict.fromkeys((*getattr(self, name), *getattr(other, name))))
                for name in ("hidden", "beside")
            )
        )


NOTHING_LEFT = LibraryWork()


def library_work(symbols: frozenset[str]) -> LibraryWork:
    """Return the work of other libraries that a library's needed symbols reveal.

    Args:
        symbols: From `needed_symbols`.
    """
    names = {symbol: _readable(symbol) for symbol in sorted(symbols)}
    hidden = [name for symbol, name in names.items() if _is_hidden(symbol, name)]
    operators = [name for name in names.values() if _is_operator(name)]
    ways = [name for name in names.values() if name.startswith(_UNWATCHED + _STATES)]
    ways += [name for name in names.values() if any(each in name for each in _KERNELS_OF)]
    if ways:
        hidden += [*ways, *operators]
    device = [name for name in names.values() if _DEVICE_LIBRARY.match(name)]
    if device and not any(_LAUNCH.match(name) for name in names.values()):
        return LibraryWork(tuple(hidden + device))
    return LibraryWork(tuple(hidden), tuple(device))


def computes(operator: str) -> bool:
    """Return True if an operator of torch computes, unlike those that create, view or copy.

    Those that create, view or copy tensors do not.

    Args:
        operator: Name of the operator, with or without its namespace.
    """
    return not _PLAIN.match(operator.rpartition("::")[2])


def _is_hidden(symbol: str, name: str) -> bool:
    if symbol in _LOADER or symbol.startswith(_IMPORT) or _BLAS.match(symbol) or _MKL.match(symbol):
        return True
    if _SHIM.match(symbol):
        return not _PLAIN_SHIM.match(symbol)
    last = name.rpartition("::")[2]
    if name.startswith(_OTHER_CODE + _DISPATCHER):
        return True
    if name.startswith("at::_ops::"):
        return last.startswith("redispatch") and _is_operator(name)
    if name.startswith(_COMPUTES):
        return not _PLAIN.match(last)
    # These namespaces also hold helpers; only functions that take a tensor compute.
    return name.startswith(_STATIC) and "6Tensor" in symbol and not _PLAIN.match(last)


def _is_operator(name: str) -> bool:
    parts = name.split("::")
    return parts[:2] == ["at", "_ops"] and len(parts) > 2 and not _PLAIN.match(parts[2])


def _readable(symbol: str) -> str:
    """Return the plain part of a mangled name, like ``at::cpu::_softmax``.

    Other names are returned unchanged.
    """
    match = _NAMED.match(symbol)
    if match is None:
        if symbol.startswith("_ZNSt"):
            return "std::" + _readable("_ZN" + symbol[5:]) if symbol[5:6].isdigit() else symbol
        return symbol
    parts, at = [], match.end()
    while length := re.compile(r"\d+").match(symbol, at):
        at = length.end() + int(length[0])
        parts.append(symbol[length.end() : at])
    return "::".join(parts)


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(name.removesuffix("::call")[:80] for name in names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


_DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_STRSZ = 5, 6, 7, 8, 10
_DT_PLTRELSZ, _DT_JMPREL = 2, 23


def needed_symbols(library: Path) -> frozenset[str]:
    """Return the symbols that a shared library needs from others.

    Args:
        library: A 64-bit little-endian ELF file.

    Raises:
        ValueError: If it is no such file, or its tables reach beyond its end.
    """
    data = library.read_bytes()
    try:
        return _needed(data)
    except (struct.error, KeyError) as error:
        raise ValueError(f"{library.name} is no readable shared library: {error}") from None


def _needed(data: bytes) -> frozenset[str]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF file")
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    # For each segment: type, offset in the file, address, size in the file.
    segments: list[tuple[int, int, int, int]] = []
    for at in range(start, start + count * size, size or 1):
        kind, _, place, address, _, length = struct.unpack_from("<IIQQQQ", data, at)
        segments.append((kind, place, address, length))
    dynamic = next(((p, n) for kind, p, _, n in segments if kind == 2), None)
    if dynamic is None:
        return frozenset()
    table = _part(data, *dynamic)
    entries = dict(struct.iter_unpack("<qQ", table[: len(table) // 16 * 16]))

    def place_of(address: int) -> int:
        for kind, place, first, length in segments:
            if kind == 1 and first <= address < first + length:
                return place + address - first
        raise ValueError("the address of a table lies in no segment of the ELF file")

    names = _part(data, place_of(entries[_DT_STRTAB]), entries[_DT_STRSZ])
    symbols = place_of(entries[_DT_SYMTAB])
    wanted: set[int] = set()
    for start, length in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
        if entries.get(length):
            relocations = _part(data, place_of(entries[start]), entries[length])
            wanted.update(info >> 32 for _, info, _ in struct.iter_unpack("<QQq", relocations))
    found = set()
    for index in wanted - {0}:
        name, _, _, section = struct.unpack_from("<IBBH", data, symbols + 24 * index)
        if not section:
            found.add(names[name : names.index(b"\0", name)].decode("utf-8", "replace"))
    return frozenset(found)


_STUB = re.compile(r"__device_stub__?(?=Z?\w)")


def device_functions(library: bytes) -> frozenset[str]:
    """Return the host's symbols of the device functions that were compiled into a library.

    For each, nvcc writes a function that launches it, whose name holds that of the device function;
    where it is inlined, its static variables have that name. Text in the library's data is no
    symbol. Empty for a library without a table of symbols.

    Args:
        library: A 64-bit little-endian ELF file.
    """
    found = set()
    try:
        (start,) = struct.unpack_from("<Q", library, 40)
        size, count = struct.unpack_from("<HH", library, 58)
        rows = [struct.unpack_from("<IIQQQQIIQQ", library, start + size * n) for n in range(count)]
        for row in rows:
            if row[1] != 2:  # a table of symbols
                continue
            names = _part(library, *rows[row[6]][4:6])
            table = _part(library, *row[4:6])
            for name, info, _, section, _, length in struct.iter_unpack("<IBBHQQ", table):
                if info & 15 in (1, 2) and section and length:  # defined here: data or a function
                    found.add(names[name : names.index(b"\0", name)].decode("latin-1"))
    except (struct.error, IndexError, ValueError):
        return frozenset()
    return frozenset(name for name in found if _STUB.search(name))


def _part(data: bytes, start: int, length: int) -> bytes:
    if start + length > len(data):
        raise ValueError("a table reaches past the end of the file")
    return data[start : start + length]
