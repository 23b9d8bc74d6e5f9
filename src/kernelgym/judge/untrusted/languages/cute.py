"""CuTe DSL beside a kernel: imports it, counts its launches and describes its compile errors.

CuTe DSL compiles in process, by MLIR and NVIDIA's own compiler library, and starts no program. A
launch is a call of a function compiled from one decorated with ``cute.jit``, which launches the
``cute.kernel`` functions inside it: it counts once, whether the caller compiled it by
``cute.compile`` or calls the decorated function itself. Compiled functions of TVM FFI are calls
from Python into C; their class's ``__call__`` is wrapped.

Loaded by path in the untrusted process: standard library, torch and CuTe DSL only.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import linecache
import os
import re
import threading
from collections.abc import Callable, Iterator
from traceback import walk_tb
from typing import Any

import torch

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_WRAPPER = re.compile(rf"^ *--> {re.escape(__file__)}:.*\n(?: *\d* *\|.*\n?)*", re.MULTILINE)
"""Quotation of the code below that wraps a call, in a complaint about the call's arguments."""
_COMPILES = frozenset({"generate_mlir", "generate_original_ir", "_prepare_compilation"})
"""Functions of CuTe DSL that trace and compile; an error below them is a compiler's complaint."""
_CUDA = 2
"""Number of CUDA's memory among DLPack's kinds of devices."""
_SOURCE = "_kernelgym_tensor"
_to_dlpack: Any = torch._C._to_dlpack  # taken before a watcher replaces it; asks for no stream


class _Calls(threading.local):
    """Arguments of the calls of CuTe DSL that a thread is inside of, the innermost last."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, Any]] = []


_calls = _Calls()
_compiled: list[str] | None = None
"""Names of functions compiled for a GPU that is not there; None if kernels are launched
normally."""


def import_packages() -> None:
    """Import CuTe DSL and what its kernels use, without touching a GPU."""
    for name in ("cutlass", "cutlass.cute", "cutlass.cute.runtime", "cutlass.utils"):
        importlib.import_module(name)
    for name in ("cutlass.torch", "cutlass.pipeline", "cuda.bindings.driver", "tvm_ffi"):
        with contextlib.suppress(ImportError):  # a kernel that needs it says so
            importlib.import_module(name)


def environment(scratch: str) -> dict[str, str]:
    """Return the environment variables of a kernel's process."""
    return {
        "CUTE_DSL_CACHE_DIR": os.path.join(scratch, "cute_dsl_cache"),
        "CUTE_DSL_DISABLE_FILE_CACHING": "1",  # a kernel's process lives for one kernel
        "NO_COLOR": "1",
    }


def count_launches(launches: Any) -> None:
    """Wrap CuTe DSL's launches, so that they are counted and can be left out."""
    from cutlass.base_dsl import dsl, jit_executor
    from cutlass.cute import runtime

    _remember_tensors(runtime._Tensor)
    for owner, name in (
        (dsl.BaseDSL, "_func"),
        (jit_executor.JitCompiledFunction, "__call__"),
        (jit_executor.JitExecutor, "__call__"),
    ):
        setattr(owner, name, _noting_arguments(getattr(owner, name)))
    executor: Any = jit_executor.JitExecutor
    execute = executor.run_compiled_program

    def run_compiled_program(self: Any, exe_args: Any) -> Any:
        given = _calls.given[-1] if _calls.given else ((), {})
        compiled = getattr(self.jit_module, "_kernelgym_names", ())
        return _launch(launches, functools.partial(execute, self, exe_args), given, compiled)

    executor.run_compiled_program = run_compiled_program
    _name_kernels()
    with contextlib.suppress(ImportError):  # without TVM FFI there are no such functions
        from cutlass.cutlass_dsl import tvm_ffi_provider

        for kind in ("TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs"):
            _count_tvm_ffi(getattr(tvm_ffi_provider, kind), launches)


def _remember_tensors(kind: Any) -> None:
    """Make CuTe's tensors remember the torch tensor that they were made of."""
    made = kind.__init__

    @functools.wraps(made)
    def init(self: Any, tensor: Any, *args: Any, **kwargs: Any) -> None:
        self.__dict__[_SOURCE] = tensor
        handed = _Handed(tensor) if isinstance(tensor, torch.Tensor) else tensor
        made(self, handed, *args, **kwargs)

    kind.__init__ = init


class _Handed:
    """A tensor that is handed to a launch: its values stay on the device.

    The watcher counts tensors that leave torch by DLPack, since other libraries may compute with
    them. Here they become arguments of a kernel. Where nothing is launched, a tensor on the CPU
    says that it lies on a GPU.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        if _compiled is not None:
            return _CUDA, 0
        kind, number = self._tensor.__dlpack_device__()
        return kind, number

    def __dlpack__(self, **_: Any) -> Any:
        if self._tensor.requires_grad:  # as torch does
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        capsule = _to_dlpack(self._tensor)
        if _compiled is not None:
            _relabel(capsule)
        return capsule


def _noting_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a Python function so that a launch inside it can see the function's arguments."""

    @functools.wraps(function)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        _calls.given.append((args, kwargs))
        try:
            return function(self, *args, **kwargs)
        finally:
            _calls.given.pop()

    return call


def _name_kernels() -> None:
    """Store in a compiled function's module the names of its kernels, as the driver has them."""
    from cutlass.base_dsl import jit_executor
    from cutlass.cutlass_dsl import cuda_jit_executor

    for owner in (
        jit_executor.JitCompiledFunction,
        cuda_jit_executor.CudaDialectJitCompiledFunction,
    ):
        owner.to = _naming(owner.to)


def _naming(to: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(to)
    def bound(self: Any, *args: Any, **kwargs: Any) -> Any:
        executor = to(self, *args, **kwargs)
        with contextlib.suppress(AttributeError):
            executor.jit_module._kernelgym_names = tuple(self.kernel_info or ())
        return executor

    return bound


def _count_tvm_ffi(kind: Any, launches: Any) -> None:
    call = kind.__call__

    @functools.wraps(call)
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        names = tuple(getattr(self, "kernel_info", None) or ())
        return _launch(
            launches, functools.partial(call, self, *args, **kwargs), (args, kwargs), names
        )

    kind.__call__ = counted


def _launch(
    launches: Any, run: Callable[[], Any], given: tuple[Any, Any], names: tuple[str, ...]
) -> Any:
    """Make a launch and count it, unless the watcher makes it or leaves it out."""
    if _compiled is not None:
        _compiled.extend(names)
        return None
    launches.count += 1
    if launches.watcher is None:
        return run()
    launch: Any = lambda *_: run()  # noqa: E731 - the tensors are for the watcher to look at
    launch.compiled_names, launch.__name__ = names, names[0] if names else "kernel"
    return launches.watcher.launch(launch, tuple(_tensors(given)), {})


def _tensors(value: Any, depth: int = 4) -> Iterator[Any]:
    """Yield the torch tensors behind the arguments of a call of CuTe DSL."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)) and depth:
        for item in value:
            yield from _tensors(item, depth - 1)
    elif isinstance(value, dict) and depth:
        yield from _tensors(tuple(value.values()), depth - 1)
    else:
        try:
            source = object.__getattribute__(value, "__dict__").get(_SOURCE)
        except AttributeError:
            return
        if isinstance(source, torch.Tensor):
            yield source


def describe_error(error: BaseException, source_file: str) -> dict[str, Any]:
    """Return a compile error's text and source lines if CuTe DSL refused a kernel; else nothing.

    The text quotes the kernel's line: CuTe DSL's messages do, but for some. An error of Python
    while a kernel is traced, such as a function of torch that is given CuTe's numbers, is a
    compiler's complaint, too.
    """
    if not _is_complaint(error):
        return {}
    found: dict[str, Any] = {"compile": True}
    text = str(error)
    if type(error).__module__.startswith("cutlass."):
        text = _COLOUR.sub("", text).replace(source_file, "kernel.py")
        text = found["text"] = _WRAPPER.sub("", text).strip()[:8000]
        found["type"] = type(error).__name__
    if lines := re.findall(r"-->\s+kernel\.py:(\d+)", text):
        found["where"] = "; ".join(f"line {line}" for line in dict.fromkeys(lines))
    elif line := _line_in(error, source_file):
        quoted = linecache.getline(source_file, line).rstrip()
        found["text"] = f"{text[:7000]}\n  --> kernel.py:{line}\n{quoted}"
    return found


def _line_in(error: BaseException, source_file: str) -> int:
    """Return the last line of the kernel's file in an error's traceback; 0 if there is none."""
    passed = walk_tb(error.__traceback__)
    lines = [line for frame, line in passed if frame.f_code.co_filename == source_file]
    return lines[-1] if lines else 0


def _is_complaint(error: BaseException) -> bool:
    compiles = False
    for frame, _ in walk_tb(error.__traceback__):
        code = frame.f_code
        ours = f"{os.sep}cutlass{os.sep}" in code.co_filename
        if ours and code.co_name in _COMPILES:
            compiles = True
        if ours and code.co_name == "run_compiled_program":
            return False
    return compiles


def begin(request: Callable[[dict[str, Any]], dict[str, Any]], target: str) -> Callable[[], int]:
    """Replace nothing, since CuTe DSL starts no program.

    For a target, launches compile and nothing is launched.

    Args:
        request: Function that has the trusted side run a program.
        target: A GPU that is not there, such as ``cuda:90a``; empty to launch.

    Returns:
        A function that returns how many kernels were compiled for the target.
    """
    return _compile_only(target) if target else lambda: 0


def _compile_only(target: str) -> Callable[[], int]:
    """Have launches compile for a GPU that is not there, and launch nothing."""
    global _compiled
    from cutlass.base_dsl import Arch, jit_executor
    from cutlass.cutlass_dsl.cutlass import CutlassBaseDSL

    names: list[str] = []
    _compiled, arch = names, f"sm_{target.partition(':')[2]}"
    if arch not in (known := [each.name for each in Arch]):
        raise ValueError(f"CuTe DSL cannot compile for {arch}, only for {', '.join(known)}")
    for kind in CutlassBaseDSL.__subclasses__():  # which read their variable when imported
        kind._get_dsl().envar.arch = arch

    def run_compiled_program(self: Any, exe_args: Any) -> None:
        names.extend(self.kernel_info or ())

    compiled: Any = jit_executor.JitCompiledFunction
    compiled.run_compiled_program = run_compiled_program  # would load the code onto the GPU
    return lambda: len(set(names))


def _relabel(capsule: Any) -> None:
    """Write the number of CUDA's memory into a DLPack capsule."""
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    given = name(capsule)
    place = pointer(capsule, given)
    if given == b"dltensor" and place:  # an unversioned tensor begins with data and device
        ctypes.c_int32.from_address(place + ctypes.sizeof(ctypes.c_void_p)).value = _CUDA
