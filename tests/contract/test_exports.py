"""The public names: complete, and there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernelgym
from support.source_tree import (
    ROOT,
    SOURCES,
    TRAIN_SOURCES,
    bound_names,
    exports,
    module_name,
    parsed,
)


def test_every_public_name_is_there() -> None:
    assert not [name for name in kernelgym.__all__ if getattr(kernelgym, name) is None]
    assert set(kernelgym.__all__) <= set(dir(kernelgym))


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'kernel_env'"):
        kernelgym.kernel_env  # noqa: B018


def test_star_import() -> None:
    names: dict[str, object] = {}
    exec("from kernelgym import *", names)
    assert set(kernelgym.__all__) <= set(names)


def faults(path: Path) -> Iterator[str]:
    """Yield what is wrong with a module's docstring and its `__all__`, if it has one."""
    tree = parsed(path)
    if not ast.get_docstring(tree):
        yield "no docstring"
    exported = exports(tree)
    if exported is None or path == ROOT / "__init__.py":  # its names are those of its .pyi
        return  # its public names are those that it defines without an underscore
    names = set(exported)
    if len(names) < len(exported):
        yield "names twice in __all__"
    bound = bound_names(tree)
    if "__getattr__" not in bound and (missing := names - bound):
        yield f"names in __all__ that are not there: {sorted(missing)}"


def test_every_module_says_what_it_is_and_what_it_exports_is_there() -> None:
    paths = (*SOURCES, *TRAIN_SOURCES)
    wrong = [f"{module_name(path)}: {fault}" for path in paths for fault in faults(path)]
    assert not wrong, "\n".join(wrong)
