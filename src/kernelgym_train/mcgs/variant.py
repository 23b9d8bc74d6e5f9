"""`Variant`: one state of a search, and the keys of states.

Contract: a variant renders to one `Kernel`, the same at every time and in every process. States
whose kernels differ in comments, layout or the order of flags have one key. Pure.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from kernelgym import Kernel, UsageError
from kernelgym.languages import LANGUAGES
from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.cpp.normal import normal_cpp
from kernelgym_train.mcgs.kernel_file import KernelFile, read_kernel_file


@dataclass(frozen=True, slots=True, order=True)
class MoveStep:
    """One move that was made at one place of a kernel, in one way."""

    move: str
    """Id of the move."""
    target: str
    """Place of the kernel; a move has at most one step at each place."""
    choice: str
    """Way in which the move was made, such as ``4 times``."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel's text, with compiler flags, meta-parameters and the steps that led to it."""

    source: str
    """Text of the kernel's module, with the start's own flags and meta-parameters."""
    language: str
    flags: tuple[str, ...] = ()
    """Compiler flags."""
    launch: tuple[tuple[str, int], ...] = ()
    """Values of meta-parameters, sorted by name. Each replaces the value of one line ``constexpr
    int NAME = ...;`` of the C++ text."""
    applied: tuple[MoveStep, ...] = ()
    """Steps that lead from the start to the variant. They are no part of its key."""

    def kernel(self) -> Kernel:
        """Return the variant as a kernel."""
        source = self.source
        if builds_extension(self.language):
            source = self.file.with_flags(self.flags).source
        return Kernel(source, self.language)

    @property
    def file(self) -> KernelFile:
        """The kernel's module with its C++ text, in which the meta-parameters have their values.

        Raises:
            UsageError: If the text does not define a meta-parameter exactly once as a constant.
        """
        file = read_kernel_file(self.source)
        cpp = file.cpp
        for name, value in self.launch:
            found = meta_parameter(cpp, name)
            if found is None:
                raise UsageError(f"the kernel has no one line 'constexpr int {name} = VALUE;'")
            start, end = found.span(1)
            cpp = f"{cpp[:start]}{value}{cpp[end:]}"
        return file if cpp == file.cpp else file.with_cpp(cpp)

    def with_edits(self, edits: Iterable[tuple[Node, str]]) -> Variant:
        """Return the variant with other texts in place of disjoint nodes of its C++ text."""
        return self.with_cpp(replaced(self.file.cpp, edits))

    def with_cpp(self, cpp: str) -> Variant:
        """Return the variant with another C++ text."""
        return dataclasses.replace(self, source=self.file.with_cpp(cpp).source)


def read_variant(kernel: Kernel) -> Variant:
    """Return the variant that a search starts from.

    Raises:
        UsageError: If a search cannot read the kernel's module.
    """
    if not builds_extension(kernel.language):
        return Variant(kernel.source, kernel.language)
    flags = read_kernel_file(kernel.source).flags
    return Variant(kernel.source, kernel.language, flags=flags)


def steps_in_words(steps: Iterable[MoveStep]) -> str:
    """Return steps as a text for a reader, such as ``unroll (4 times), hoist (keep)``."""
    return ", ".join(f"{step.move} ({step.choice})" for step in steps)


def meta_parameter(cpp: str, name: str) -> re.Match[str] | None:
    """Return the match whose group 1 is a meta-parameter's value in a C++ text.

    None if the text does not define it exactly once as a constant.
    """
    found = list(re.finditer(rf"^constexpr int {name} = (-?\d+);$", cpp, re.MULTILINE))
    return found[0] if len(found) == 1 else None


def state_key(variant: Variant) -> str:
    """Return 32 hexadecimal digits that variants with the same program share."""
    source = variant.file.source if variant.launch else variant.source
    return _key(source, variant.language, variant.flags)


@functools.lru_cache(maxsize=4096)
def _key(source: str, language: str, flags: tuple[str, ...]) -> str:
    variant = Variant(source, language, flags)
    module = ast.parse(variant.source)
    cpp = ""
    if builds_extension(variant.language):
        file = variant.file
        cpp = normal_cpp(file.cpp)
        # The C++ text and the flags are part of the key in the form that a compiler sees.
        module = ast.parse(file.with_flags(()).with_cpp("").source)
    state = {
        "language": variant.language,
        "module": ast.unparse(_without_docstrings(module)),
        "extension": cpp,
        "flags": sorted(set(variant.flags)),
    }
    return _digest(state)


def launch_key(variant: Variant) -> str:
    """Return 32 hexadecimal digits that variants share if they differ in C++ alone.

    The modules of such variants run the same Python code, and compiler flags do not count, so that
    with equal machine code they do the same.
    """
    module = ast.parse(variant.source)
    if builds_extension(variant.language):
        # The module that `Variant.kernel` gives, since compiler flags may add linker flags.
        file = read_kernel_file(variant.kernel().source)
        module = ast.parse(file.with_flags(()).with_cpp("").source)
    text = ast.unparse(_without_docstrings(module))
    return _digest({"language": variant.language, "module": text})


def context_key(parts: Iterable[tuple[str, str | Sequence[str]]]) -> str:
    """Return 32 hexadecimal digits that searches with comparable times share.

    Args:
        parts: (what it is, value), such as the task's digest, the ruleset's label, the judge's
            provenance and the package's version. States of other contexts are never compared.
    """
    return _digest(dict(parts))


def builds_extension(language: str) -> bool:
    """Return True if kernels of a language hold C++ that ``load_inline`` builds."""
    return "load_inline" in LANGUAGES[language].own_kernel.builders


def _digest(data: object) -> str:
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree
