"""Source files of both packages, and what they import; each file is parsed once."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import kernelgym
import kernelgym_train

ROOT = Path(kernelgym.__file__).parent
TRAIN = Path(kernelgym_train.__file__).parent
SOURCES = tuple(sorted(ROOT.rglob("*.py")))
TRAIN_SOURCES = tuple(sorted(TRAIN.rglob("*.py")))


def module_name(path: Path) -> str:
    """Return the dotted name of a file of either package."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in (*SOURCES, *TRAIN_SOURCES)}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, or one name imported from it."""

    module: str
    name: str
    """Name that is imported from the module; empty if it is the module itself."""
    when: Literal["now", "late", "typing"]
    """At the import of the file, in a function, or for the type checker alone."""


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: Path) -> tuple[Import, ...]:
    """Return what a file imports."""
    return tuple(_imports(parsed(path).body, "now"))


def _imports(nodes: Iterable[ast.AST], when: Literal["now", "late", "typing"]) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imports(node.body, "typing")
            yield from _imports(node.orelse, when)
            continue
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, "", when) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import would hide where a name comes from.
            assert node.level == 0 and node.module, f"relative import in line {node.lineno}"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                is_module = full in MODULES
                yield Import(full, "", when) if is_module else Import(node.module, alias.name, when)
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imports(ast.iter_child_nodes(node), "late" if inner and when == "now" else when)


def bound_names(tree: ast.Module) -> set[str]:
    """Return the names that a module's top level defines, assigns or imports."""
    bound: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            bound |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name for alias in node.names}
    return bound


def exports(tree: ast.Module) -> list[str] | None:
    """Return the names in a module's `__all__`, or None if it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant)]
    return None


def defined_names(tree: ast.Module) -> set[str]:
    """Return the names that a module's top level defines or assigns; imported names are not."""
    without_imports = [n for n in tree.body if not isinstance(n, ast.Import | ast.ImportFrom)]
    return bound_names(ast.Module(without_imports, []))


def is_exported(name: str, tree: ast.Module) -> bool:
    """Return True if others may import the name: it is in `__all__`, or defined and not private.

    A module needs an `__all__` only where it passes on names of other modules.
    """
    listed = exports(tree)
    if listed is not None:
        return name in listed
    return not name.startswith("_") and name in defined_names(tree)
