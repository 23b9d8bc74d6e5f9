"""A module's source as a syntax tree, and the names that it imports.

Contract: nothing is imported or run, and nothing raises: text that cannot be parsed has no tree.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernelgym.answers.python_source import read_python

MAX_CHARS = 200_000
"""Largest number of characters of a source that is read."""


def parsed(source: str) -> ast.Module | None:
    """Return a module's syntax tree; None if it cannot be parsed or is too long.

    The tree is shared between callers, who must not change it.
    """
    if len(source) > MAX_CHARS:
        return None
    tree = read_python(source)
    return tree if isinstance(tree, ast.Module) else None


def aliases_of(tree: ast.AST) -> dict[str, str]:
    """Return the dotted name that each imported name of a module stands for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                found[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}".strip(".")
    return found


def method_of(
    classes: Mapping[str, ast.ClassDef], kind: ast.ClassDef, name: str
) -> ast.FunctionDef | None:
    """Return a class's method, defined in the class or a base class; None if it has none."""
    todo, seen = [kind], {kind.name}
    while todo:
        here = todo.pop(0)
        for node in here.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return node
        bases = [base.id for base in here.bases if isinstance(base, ast.Name)]
        todo += [classes[base] for base in bases if base in classes and base not in seen]
        seen.update(bases)
    return None
