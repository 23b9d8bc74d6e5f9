"""Stand-ins for `torch.utils.cpp_extension.load_inline` and `load` in a candidate.

They send their arguments to the trusted side, which builds the extension in another process, and
then load the library here. A kernel's order of imports stays as it is.

Loaded by path in the untrusted process: standard library and torch only. Code in the same process
can undo the replacement, so it serves honest kernels and is no security boundary.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


class BuildFailed(RuntimeError):
    """The extension did not compile."""


def replace_extension_builds(request: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Route extension builds through `request`, which blocks for the trusted side's answer."""
    import torch
    from torch.utils import cpp_extension

    loaded: dict[str, Any] = {}

    def load_inline(
        name: str,
        cpp_sources: str | list[str],
        cuda_sources: str | list[str] | None = None,
        sycl_sources: Any = None,
        functions: str | list[str] | dict[str, str] | None = None,
        extra_cflags: list[str] | None = None,
        extra_cuda_cflags: list[str] | None = None,
        extra_sycl_cflags: Any = None,
        extra_ldflags: list[str] | None = None,
        extra_include_paths: Any = None,
        build_directory: Any = None,
        verbose: bool = False,
        with_cuda: bool | None = None,
        with_sycl: Any = None,
        is_python_module: bool = True,
        with_pytorch_error_handling: bool = True,
        keep_intermediates: bool = True,
        use_pch: bool = False,
        no_implicit_headers: bool = False,
    ) -> Any:
        """Stand in for `torch.utils.cpp_extension.load_inline`."""
        if functions is not None and not isinstance(functions, (str, list, tuple, dict)):
            raise ValueError(
                f"Expected 'functions' to be a list or dict, but was {type(functions)}"
            )
        if isinstance(functions, str):
            functions = [functions]
        if not isinstance(functions, Mapping):
            functions = None if functions is None else {f: f for f in functions}
        return _build(
            name=name,
            cpp_sources=_strings(cpp_sources),
            cuda_sources=_strings(cuda_sources),
            functions=functions,
            cflags=_strings(extra_cflags),
            cuda_cflags=_strings(extra_cuda_cflags),
            ldflags=_strings(extra_ldflags),
            include_paths=_strings(extra_include_paths),
            is_python_module=is_python_module,
            implicit_headers=not no_implicit_headers,
        )

    def load(name: str, sources: str | list[str], *args: Any, **kwargs: Any) -> Any:
        """Stand in for `torch.utils.cpp_extension.load`: read the sources and request a build."""
        flags = ("extra_cflags", "extra_cuda_cflags", "extra_sycl_cflags", "extra_ldflags")
        names = (*flags, "extra_include_paths")
        options = {**dict(zip(names, args, strict=False)), **kwargs}
        texts: dict[bool, list[str]] = {True: [], False: []}
        for path in _strings(sources):
            with open(path) as file:
                texts[os.path.splitext(path)[1] in (".cu", ".cuh", ".hip")].append(file.read())
        return _build(
            name=name,
            cpp_sources=texts[False],
            cuda_sources=texts[True],
            functions=None,
            cflags=_strings(options.get("extra_cflags")),
            cuda_cflags=_strings(options.get("extra_cuda_cflags")),
            ldflags=_strings(options.get("extra_ldflags")),
            include_paths=_strings(options.get("extra_include_paths")),
            is_python_module=options.get("is_python_module", True),
            implicit_headers=False,
        )

    def _build(name: str, is_python_module: bool, **arguments: Any) -> Any:
        arguments |= {"name": str(name), "python_module": bool(is_python_module)}
        reply = request({**arguments, "cxx": os.environ.get("CXX", "")})
        if "unloaded" in reply:  # compiled for a device that is not here
            return ModuleType(str(name)) if is_python_module else str(name)
        if "module" not in reply:
            raise BuildFailed(str(reply.get("failed", "the build failed")))
        unique, fd = reply["module"], reply["fds"][0]
        if unique in loaded:
            # A library registers its operators once: reuse it if the same source is built again.
            os.close(fd)
            return loaded[unique]
        # The descriptor stays open. If its number were used again, the loader would take the same
        # path for the library that it has loaded already.
        path = f"/proc/self/fd/{fd}"
        if is_python_module:
            loader = importlib.machinery.ExtensionFileLoader(unique, path)
            spec = importlib.util.spec_from_file_location(unique, path, loader=loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            module.__name__ = str(name)
            loaded[unique] = module
        else:
            # As torch.ops.load_library does, except that torch would resolve the link.
            ctypes.CDLL(path)
            torch.ops.loaded_libraries.add(path)
            loaded[unique] = path
        return loaded[unique]

    cpp_extension.load_inline = load_inline
    cpp_extension.load = load


def _strings(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(value)] if isinstance(value, (str, os.PathLike)) else [str(v) for v in value]
