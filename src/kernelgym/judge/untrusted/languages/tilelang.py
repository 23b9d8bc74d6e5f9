"""TileLang beside a kernel: imports it, counts its launches and routes its compilers.

TileLang lowers a kernel in process and then starts nvcc for its device code and a C++ compiler for
the host's side of a launch. Both become requests over the channel. A launch is a call of a compiled
kernel, whether through `JITKernel` or through its adapter's function.

Loaded by path in the untrusted process: standard library, torch and TileLang only.
"""

from __future__ import annotations

import functools
import importlib
import linecache
import os
import platform
import re
from collections.abc import Callable
from traceback import walk_tb
from typing import Any

import torch

_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")
_LAUNCH = "func"
"""Name of the function of TileLang's adapters that launches a kernel."""
_LONGEST = 7000

_compiled: list[str] | None = None
"""Names of kernels compiled for a GPU that is not there; None if kernels are launched normally."""


class TileLangBuildFailed(RuntimeError):
    """A kernel's device code or host library did not compile."""


def import_packages() -> None:
    """Import TileLang, without touching a GPU."""
    importlib.import_module("tilelang")
    importlib.import_module("tilelang.language")


def environment(scratch: str) -> dict[str, str]:
    """Return the environment variables of a kernel's process."""
    return {
        "TILELANG_CACHE_DIR": os.path.join(scratch, "tilelang_cache"),
        "TILELANG_DISABLE_CACHE": "1",  # a kernel's process lives for one kernel
        "TILELANG_PRINT_ON_COMPILATION": "0",
    }


def _replace_compilers(request: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Replace TileLang's calls of compilers by `request`, which blocks for the answer."""
    from tilelang.contrib import nvcc

    ours = ("TILELANG_TEMPLATE_PATH", "CUTLASS_INCLUDE_DIR")
    env = importlib.import_module("tilelang.env")
    added = {f"-I{getattr(env, name, '')}" for name in ours}  # the other side adds them itself

    def compile_cuda(
        code: str,
        target_format: str = "ptx",
        arch: Any = None,
        options: Any = None,
        path_target: str | None = None,
        verbose: bool = False,
    ) -> bytearray:
        """Stand in for `tilelang.contrib.nvcc.compile_cuda`."""
        flags = [arch] if isinstance(arch, str) else list(arch or ())
        flags += [options] if isinstance(options, str) else list(options or ())
        flags = [str(flag) for flag in flags if str(flag) not in added]
        asked = {"source": code, "format": target_format, "options": flags}
        return bytearray(_made(request({"program": "device_code", **asked})))

    def create_shared(output: str, objects: Any, *_: Any, **__: Any) -> None:
        """Stand in for `create_shared`: build a library from C texts."""
        texts = []
        for path in [objects] if isinstance(objects, str) else objects:
            with open(path) as file:
                texts.append(file.read())
        made = _made(request({"program": "host_library", "sources": texts}))
        with open(output, "wb") as copy:
            copy.write(made)

    shared: Any = create_shared
    shared.output_format = "so"
    shared.get_target_triple = lambda: f"{platform.machine()}-linux-gnu"
    nvcc.compile_cuda = compile_cuda
    for name in ("tilelang.contrib.cc", "tvm.contrib.cc"):
        setattr(importlib.import_module(name), "create_shared", shared)  # noqa: B010


def _made(reply: dict[str, Any]) -> bytes:
    if "module" not in reply:
        raise TileLangBuildFailed(str(reply.get("failed", "the build failed")))
    with os.fdopen(reply["fds"][0], "rb") as made:
        made.seek(0)
        return made.read()


def count_launches(launches: Any) -> None:
    """Wrap compiled kernels' functions, so that calls are counted and can be left out."""
    from tilelang.jit.adapter.base import BaseKernelAdapter

    finish = BaseKernelAdapter._post_init

    def post_init(self: Any) -> None:
        finish(self)
        self.func = _counted(self, self.func, launches)

    BaseKernelAdapter._post_init = post_init


def _counted(adapter: Any, function: Callable[..., Any], launches: Any) -> Callable[..., Any]:
    names: list[str] = []

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        if not names:
            names.extend(_names_of(adapter))
        if _compiled is not None:
            _compiled.extend(names)
            return _outputs(adapter, args)
        launches.count += 1
        if launches.watcher is None:
            return function(*args, **kwargs)
        launch: Any = functools.partial(function)
        launch.compiled_names, launch.__name__ = tuple(names), names[0] if names else "kernel"
        skip = functools.partial(_spoilt, adapter, function, args, kwargs)
        return launches.watcher.launch(launch, args, kwargs, skip)

    return counted


def _names_of(adapter: Any) -> list[str]:
    """Return the names of an adapter's kernels, as the driver has them."""
    try:
        source = adapter.device_kernel_source or adapter.get_kernel_source()
    except Exception:
        return []
    return list(dict.fromkeys(_KERNEL.findall(str(source))))


def _spoilt(adapter: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the outputs of a launch that is left out: tensors that hold no result.

    A kernel with ``out_idx`` makes its outputs, and only TileLang knows their shapes: it runs on
    copies of its arguments, and its outputs are overwritten. Any other kernel returns nothing.
    """
    if not adapter.result_idx:
        return None
    copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in args]
    made = function(*copies, **kwargs)
    for tensor in made if isinstance(made, (list, tuple)) else [made]:
        tensor.fill_(float("nan") if tensor.is_floating_point() else 1)
    return made


def _outputs(adapter: Any, args: Any) -> Any:
    """Return empty tensors like a kernel's outputs; None if it returns none."""
    made, sizes = [], dict[str, int]()
    outputs = set(adapter.result_idx)
    inputs = [each for number, each in enumerate(adapter.params) if number not in outputs]
    for parameter, given in zip(inputs, args, strict=False):
        if isinstance(given, torch.Tensor):
            named = zip(map(str, parameter.shape), given.shape, strict=False)
            sizes |= {dim: size for dim, size in named if not dim.isdigit()}
    for number in adapter.result_idx:
        parameter = adapter.params[number]
        texts = map(str, parameter.shape)  # such as 64, n or n * 2
        shape = [int(sizes.get(text) or eval(text, {}, sizes)) for text in texts]
        made.append(torch.empty(shape, dtype=parameter.torch_dtype()))
    return made[0] if len(made) == 1 else (made or None)


def describe_error(error: BaseException, source_file: str) -> dict[str, Any]:
    """Return the complaint of TileLang's compiler or of nvcc, with the kernel's line.

    Nothing for errors at a launch, and for errors outside of TileLang.
    """
    lines, inside = [], list[str]()
    for frame, line in walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_filename == source_file:
            lines.append(line)
        if f"{os.sep}tilelang{os.sep}" in code.co_filename:
            inside.append(code.co_name)
    built = isinstance(error, TileLangBuildFailed)
    # Arguments that do not fit are refused below a launch, in frames named after C++ functions.
    if not (built or (inside and _LAUNCH not in inside)):
        return {}
    text = (str(error) if built else _without_own_frames(str(error)))[:_LONGEST]
    if lines:
        quoted = linecache.getline(source_file, lines[-1]).rstrip()
        text = f"{text}\n  --> kernel.py:{lines[-1]}\n{quoted}"
    return {"compile": True, "text": text}


def _without_own_frames(text: str) -> str:
    """Return the text of a TVM error without the lines on TVM's own files."""
    kept = [line for line in text.splitlines() if not line.lstrip().startswith(("File ", "#"))]
    return "\n".join(kept).strip() or text


def begin(request: Callable[[dict[str, Any]], dict[str, Any]], target: str) -> Callable[[], int]:
    """Replace TileLang's calls of compilers by `request`.

    For a target, launches compile and nothing is launched.

    Args:
        request: Function that has the trusted side run a program.
        target: A GPU that is not there, such as ``cuda:90a``; empty to launch.

    Returns:
        A function that returns how many kernels were compiled for the target.
    """
    _replace_compilers(request)
    return _compile_only(target) if target else lambda: 0


def _compile_only(target: str) -> Callable[[], int]:
    """Have launches compile for a GPU that is not there, and launch nothing."""
    global _compiled
    from tilelang.backend import target as targets

    names: list[str] = []
    _compiled = names
    arch = f"sm_{target.partition(':')[2]}"
    targets.auto_detect_target = lambda: {"kind": "cuda", "arch": arch}
    return lambda: len(set(names))
