"""How a search reads and writes a kernel's module, by language.

Kernels that ``load_inline`` builds hold the compiler's text, C++ or CUDA, and flags in a module;
kernels that a decorator compiles are the module itself. A module that is neither is a text, which
rules cannot change and a writer can. Pure.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence

from kernelgym import UsageError
from kernelgym.answers.python_source import UnreadableSource, read_python
from kernelgym.languages import LANGUAGES
from kernelgym_train.mcgs.cpp.normal import normal_cpp
from kernelgym_train.mcgs.cpp.syntax import is_deep, parsed
from kernelgym_train.mcgs.kernel_file import KernelFile, read_kernel_file
from kernelgym_train.mcgs.triton.module import read_module

_MOST_NODES = 20_000  # about 1,000 lines; 600 loops, as many, take seconds for each variant
Launch = Sequence[tuple[str, int]]
"""(name, value) of meta-parameters."""


def read_flags(language: str, source: str) -> tuple[str, ...]:
    """Return a module's compiler flags.

    Raises:
        UsageError: If a search does not understand the module.
    """
    if builds_extension(language):
        file = read_kernel_file(source)
        tree = parsed(file.cpp)
        if tree.descendant_count > _MOST_NODES:
            raise UsageError(
                f"the C++ or CUDA text has {tree.descendant_count:,} syntax nodes, and rules read "
                f"at most {_MOST_NODES:,}"
            )
        if is_deep(tree):
            raise UsageError("the C++ or CUDA text is nested too deeply for rules to read")
        return file.flags
    if not read_module(source).launches:
        raise UsageError(
            "the kernel launches no function that is decorated with triton.jit in the same "
            "module, as in name[grid](...)"
        )
    return ()


def rendered(language: str, source: str, flags: tuple[str, ...], launch: Launch) -> str:
    """Return a module with these flags and meta-parameters."""
    if not holds_extension(language, source):
        return source
    return extension_file(source, launch).with_flags(flags).source


def normal(language: str, source: str, launch: Launch) -> tuple[str, str]:
    """Return a module and its compiled text, without flags, comments and layout."""
    if not holds_extension(language, source):
        return plain_module(source), ""
    file = extension_file(source, launch)
    return plain_module(file.with_flags(()).with_cpp("").source), normal_cpp(file.cpp)


@functools.lru_cache(maxsize=4096)
def is_read(language: str, source: str) -> bool:
    """Return True if a search can parse a module, so that rules can change it."""
    try:
        read_flags(language, source)
    except UsageError:
        return False
    return True


def holds_extension(language: str, source: str) -> bool:
    """Return True if a module holds C++ or CUDA that a search can parse."""
    return builds_extension(language) and is_read(language, source)


def holds_cpp(language: str, source: str) -> bool:
    """Return True if a module holds C++ for the CPU that a search can parse."""
    return holds_extension(language, source) and not _for_devices(language)


def holds_cuda(language: str, source: str) -> bool:
    """Return True if a module holds CUDA that a search can parse."""
    return holds_extension(language, source) and _for_devices(language)


def _for_devices(language: str) -> bool:
    return bool(LANGUAGES[language].own_kernel.device_marker)


def is_script(language: str, source: str) -> bool:
    """Return True if a module is compiled by its decorators, and a search can parse it."""
    return not builds_extension(language) and is_read(language, source)


def builds_extension(language: str) -> bool:
    """Return True if kernels of a language hold C++ or CUDA that ``load_inline`` builds."""
    return "load_inline" in LANGUAGES[language].own_kernel.builders


def extension_file(source: str, launch: Launch) -> KernelFile:
    """Return a module with its C++ text, in which the meta-parameters have their values.

    Args:
        source: Text of the module.
        launch: Values of meta-parameters. Each replaces the value of one line ``constexpr int NAME
            = ...;`` of the C++ text.

    Raises:
        UsageError: If the text does not define a meta-parameter exactly once as a constant.
    """
    file = read_kernel_file(source)
    cpp = file.cpp
    for name, value in launch:
        found = meta_parameter(cpp, name)
        if found is None:
            raise UsageError(f"the kernel has no one line 'constexpr int {name} = VALUE;'")
        start, end = found.span(1)
        cpp = f"{cpp[:start]}{value}{cpp[end:]}"
    return file if cpp == file.cpp else file.with_cpp(cpp)


def meta_parameter(cpp: str, name: str) -> re.Match[str] | None:
    """Return the match whose group 1 is a meta-parameter's value in a C++ text.

    None if the text does not define it exactly once as a constant.
    """
    found = list(re.finditer(rf"^constexpr int {name} = (-?\d+);$", cpp, re.MULTILINE))
    return found[0] if len(found) == 1 else None


def plain_module(source: str) -> str:
    """Return a Python module without comments, layout and docstrings.

    Raises:
        UsageError: If the text is not Python.
    """
    if isinstance(read := read_python(source), UnreadableSource):
        raise UsageError(f"the kernel is not a Python module: {read.message}")
    tree = ast.parse(source)  # a tree of its own, which is changed
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
