"""Counts the launches of custom kernels in this process and lets a watcher intercept them.

A custom launch is a launch of a Triton kernel, interpreted or compiled, unless its function lies in
an installed package, as those of `torch.sparse` do; of an NVRTC kernel
(`torch.cuda._compile_kernel`), or a call of a function or operator of an extension built through
`torch.utils.cpp_extension`. Each replay of a CUDA graph whose capture held a custom launch counts
as one launch.

Counting takes one addition. It is on in every process from the start, timed or not, so that a
kernel finds the same wrappers whether it is watched or not.

Loaded by path in the untrusted process: standard library, torch and triton only. Code in the same
process can undo the wrappers or raise the count, so the count decides about honest and lazy kernels
only.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

_INSTALLED = (
    *(sys.prefix, sys.base_prefix),
    os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))),
)


def _is_installed(function: Any) -> bool:
    """Return True if a Triton kernel's function lies in a file of an installed package."""
    for _ in range(8):  # `triton.jit` of a kernel's function, or of one that wraps it
        code = getattr(function, "__code__", None)
        if code is not None:
            return isinstance(code.co_filename, str) and code.co_filename.startswith(_INSTALLED)
        function = getattr(function, "fn", None)
    return False


class Launches:
    """Counts launches from the moment it is made; one per process."""

    def __init__(self) -> None:
        self.count = 0
        """Launches so far."""
        self.watcher: Any = None
        """A `Tracer` that makes launches and extension calls itself, or None."""
        self._operators: set[str] = set()
        self._watches_operators = False
        _count_triton(self)
        _count_cuda(self)
        _count_graphs(self)

    def are_left_out(self) -> bool:
        """Return True while the watcher skips launches."""
        return self.watcher is not None and bool(self.watcher.is_skipping())

    def of_a_library(self, launch: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a launch of an installed package's Triton kernel, which is not counted."""
        if self.watcher is not None:
            return self.watcher.launch_of_a_library(launch, args, kwargs)
        return launch(*args, **kwargs)

    def count_extensions(self) -> None:
        """Wrap the current `load_inline` and `load`, and what they return."""
        from torch.utils import cpp_extension

        for name in ("load_inline", "load"):
            setattr(cpp_extension, name, self._loader(getattr(cpp_extension, name)))

    def _loader(self, load: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(load)
        def loader(*args: Any, **kwargs: Any) -> Any:
            before = set(torch._C._dispatch_get_all_op_names())
            module = load(*args, **kwargs)
            names = set(torch._C._dispatch_get_all_op_names()) - before
            if names and not self._watches_operators:
                self._watches_operators = True
                _count_operators(self, self._operators)
            self._operators |= {name.partition(".")[0] for name in names}
            if isinstance(module, ModuleType):
                for name, value in list(vars(module).items()):
                    if isinstance(value, type):
                        self._wrap_class(value)
                    elif callable(value) and not hasattr(value, "__wrapped__"):
                        setattr(module, name, self._function(value))
            return module

        return loader

    def _wrap_class(self, kind: type) -> None:
        for name, value in list(vars(kind).items()):
            if hasattr(value, "__wrapped__") or not callable(value):
                continue
            if name == "__call__" or not name.startswith("_"):
                setattr(kind, name, self._function(value))

    def _function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.watcher is not None:
                return self.watcher.boundary(function, args, kwargs)
            return function(*args, **kwargs)

        return call


class _Named:
    """Makes a launch of a kernel whose name is known."""

    def __init__(self, launch: Callable[..., Any], name: str | None) -> None:
        self._launch, self.compiled_name = launch, name
        self.__name__ = name or "kernel"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._launch(*args, **kwargs)


def _count_triton(launches: Launches) -> None:
    if "triton" not in sys.modules:
        return
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import jit

    interpreter = sys.modules.get("triton.runtime.interpreter")
    if interpreter is not None:
        execute = interpreter.GridExecutor.__call__

        def executed(self: Any, *args: Any, **kwargs: Any) -> Any:
            if _is_installed(self):
                return launches.of_a_library(functools.partial(execute, self), args, kwargs)
            launches.count += 1
            if launches.watcher is not None:
                return launches.watcher.launch(functools.partial(execute, self), args, kwargs)
            return execute(self, *args, **kwargs)

        interpreter.GridExecutor.__call__ = executed
    run, select = jit.JITFunction.run, CompiledKernel.__getitem__

    def ran(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup:
            return run(self, *args, grid=grid, warmup=True, **kwargs)
        if _is_installed(self):
            bound = functools.partial(run, self, grid=grid, warmup=False)
            return launches.of_a_library(bound, args, kwargs)
        launches.count += 1
        if launches.watcher is None:
            return run(self, *args, grid=grid, warmup=False, **kwargs)
        bound = functools.partial(run, self, grid=grid, warmup=False)
        # A launch returns the compiled kernel, which its caller may inspect.
        skip = functools.partial(run, self, *args, grid=grid, warmup=True, **kwargs)
        return launches.watcher.launch(bound, args, kwargs, skip)

    def selected(self: Any, grid: Any) -> Any:
        launch = select(self, grid)

        def launched(*args: Any, **kwargs: Any) -> Any:
            if _is_installed(getattr(self, "src", None)):
                return launches.of_a_library(launch, args, kwargs)
            launches.count += 1
            if launches.watcher is not None:
                named = _Named(launch, getattr(self, "name", None))
                return launches.watcher.launch(named, args, kwargs)
            return launch(*args, **kwargs)

        return launched

    jit.JITFunction.run = ran
    CompiledKernel.__getitem__ = selected


def _count_cuda(launches: Launches) -> None:
    from torch.cuda import _utils

    module: Any = _utils._CudaModule
    kernel: Any = _utils._CudaKernel
    look_up, call = module.__getattr__, kernel.__call__

    def found(self: Any, name: str) -> Any:
        kernel = look_up(self, name)
        kernel.compiled_name = name
        return kernel

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        launches.count += 1
        if launches.watcher is not None:
            name = _name_of_function(self.func) or getattr(self, "compiled_name", None)
            named = _Named(functools.partial(call, self), name)
            return launches.watcher.launch(named, args, kwargs)
        return call(self, *args, **kwargs)

    module.__getattr__, kernel.__call__ = found, called


def _name_of_function(function: Any) -> str | None:
    """Return the name by which the driver knows a kernel; None if the driver does not tell."""
    name = ctypes.c_char_p()
    try:
        status = ctypes.CDLL("libcuda.so.1").cuFuncGetName(ctypes.byref(name), function)
    except (OSError, AttributeError, ctypes.ArgumentError):  # a driver older than CUDA 12.3
        return None
    return name.value.decode() if status == 0 and name.value is not None else None


def _count_graphs(launches: Launches) -> None:
    graph: Any = torch.cuda.CUDAGraph
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    def begun(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._launched_before = launches.count
        self._seen = launches.watcher is None or launches.watcher.inside()
        return begin(self, *args, **kwargs)

    def ended(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._holds_launches = launches.count > getattr(self, "_launched_before", launches.count)
        return end(self, *args, **kwargs)

    def replayed(self: Any, *args: Any, **kwargs: Any) -> Any:
        launches.count += getattr(self, "_holds_launches", False)
        if launches.watcher is not None and not getattr(self, "_seen", False):
            launches.watcher.unseen_replay()
        return replay(self, *args, **kwargs)

    graph.capture_begin, graph.capture_end, graph.replay = begun, ended, replayed


def _count_operators(launches: Launches, names: set[str]) -> None:
    def counted(original: Callable[..., Any], name_of: Callable[[Any], str]) -> Any:
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            if name_of(self) not in names:
                return original(self, *args, **kwargs)
            launches.count += 1
            if launches.watcher is not None:
                bound = functools.partial(original, self)
                return launches.watcher.boundary(bound, args, kwargs)
            return original(self, *args, **kwargs)

        return call

    packet: Any = torch._ops.OpOverloadPacket
    overload: Any = torch._ops.OpOverload
    packet.__call__ = counted(packet.__call__, lambda op: op._qualified_op_name)
    overload.__call__ = counted(overload.__call__, lambda op: op._schema.name)
