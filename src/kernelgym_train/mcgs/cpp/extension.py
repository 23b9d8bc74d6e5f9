"""C++ text of a variant, and the variants made by replacing it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.kernel_file import KernelFile
from kernelgym_train.mcgs.source_forms import extension_file
from kernelgym_train.mcgs.variant import Variant


def file_of(variant: Variant) -> KernelFile:
    """Return a variant's module with its C++ text, in which meta-parameters have their values.

    Raises:
        UsageError: If the text does not define a meta-parameter exactly once as a constant.
    """
    return extension_file(variant.source, variant.launch)


def with_edits(variant: Variant, edits: Iterable[tuple[Node, str]]) -> Variant:
    """Return a variant in whose C++ text disjoint nodes are replaced by other texts."""
    return with_cpp(variant, replaced(file_of(variant).cpp, edits))


def with_cpp(variant: Variant, cpp: str) -> Variant:
    """Return a variant with another C++ text, all else unchanged."""
    return dataclasses.replace(variant, source=file_of(variant).with_cpp(cpp).source)
