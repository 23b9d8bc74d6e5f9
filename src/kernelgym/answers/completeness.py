"""Distinguishes a whole module from a usage stub, a fragment and broken code.

Contract: `completeness` only orders several answers of one text; a single answer is taken however
complete it is. It looks at the source alone, by its syntax tree, and never raises.

It does not judge: a whole module can be wrong, and a fragment may run.
"""

from __future__ import annotations

import ast
import builtins
from enum import IntEnum
from functools import lru_cache

from kernelgym.answers.python_source import UnreadableSource, read_python


class Completeness(IntEnum):
    """Degree to which a source is a module that can replace a model."""

    STUB = 0
    """Interface of `ModelNew` without its work, as in a usage example."""
    BROKEN = 1
    """Source with a syntax error."""
    FRAGMENT = 2
    """Module that uses names which it neither imports nor defines."""
    WHOLE = 3
    """Module that defines all it uses."""


def is_module(source: str) -> bool:
    """Return True if a source is Python without a syntax error that defines class `ModelNew`."""
    if "ModelNew" not in source:
        return False
    tree = read_python(source)
    return not isinstance(tree, UnreadableSource) and _model(tree) is not None


@lru_cache(maxsize=64)
def completeness(source: str) -> Completeness:
    """Return how complete a source is."""
    tree = read_python(source)
    if isinstance(tree, UnreadableSource):
        return Completeness.BROKEN
    try:
        model = _model(tree)
        if model is None or _is_stub(model):
            return Completeness.STUB
        return Completeness.FRAGMENT if _has_free_names(tree) else Completeness.WHOLE
    except RecursionError:
        return Completeness.BROKEN


def _model(tree: ast.Module) -> ast.ClassDef | None:
    found = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return next((node for node in found if node.name == "ModelNew"), None)


def _is_stub(model: ast.ClassDef) -> bool:
    """Return True if `forward` is left out or elided."""
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    forward = methods.get("forward")
    if forward is None:
        # Another class than torch's Module may bring `forward` along.
        return all(ast.unparse(base).rpartition(".")[2] == "Module" for base in model.bases)
    return all(_says_nothing(node) for node in forward.body) or any(
        _is_ellipsis(node) for method in methods.values() for node in method.body
    )


def _is_ellipsis(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr | ast.Return) else None
    return isinstance(value, ast.Constant) and value.value is ...


def _says_nothing(node: ast.stmt) -> bool:
    """Return True for ``pass``, a docstring, and ``raise NotImplementedError``."""
    if isinstance(node, ast.Raise) and node.exc is not None:
        return ast.unparse(node.exc).startswith("NotImplemented")
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _has_free_names(tree: ast.Module) -> bool:
    """Return True if a name is used that is bound nowhere in the module, whatever its scope."""
    used: set[str] = set()
    bound = set(dir(builtins)) | {"__file__", "__class__", "__path__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
            if "*" in names:
                return False
            bound.update(names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
    return not used <= bound
