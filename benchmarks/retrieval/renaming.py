"""A reference as another author would write it: other names, import style, sizes, no docstrings.

Contract: a pure function of source and seed; the result computes the same, but for sizes.
"""

from __future__ import annotations

import ast
import builtins
import random
import string

__all__ = ["renamed", "without_docstrings"]

_KEPT = {"Model", "forward", "get_inputs", "get_init_inputs", "self", "super"}
_STYLES = (
    {"torch": "torch", "torch.nn": "nn", "torch.nn.functional": "F"},
    {"torch": "th", "torch.nn": "tnn", "torch.nn.functional": "functional"},
    {"torch": "torch", "torch.nn": "layers", "torch.nn.functional": "fn"},
)


def without_docstrings(source: str) -> str:
    """Return a module without docstrings and comments."""
    return ast.unparse(_Undocumented().visit(ast.parse(source)))


def renamed(source: str, seed: int, *, sizes: bool = False) -> str:
    """Return a module with random names, another style of imports and no docstrings.

    Args:
        source: A reference; imports of torch, ``torch.nn`` and ``torch.nn.functional`` change
            their style, others stay.
        seed: Decides names and style.
        sizes: Change the whole numbers of assignments at module level, too.
    """
    rng = random.Random(seed)
    tree = _Undocumented().visit(ast.parse(source))
    style = rng.choice(_STYLES)
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                names[bound] = style.get(alias.name, bound)
    # What else a module calls its classes is text to a reader of imports: they stay.
    names |= {node.name: node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    tree = _Renamed(rng, names).visit(tree)
    body = [node for node in tree.body if not _is_ours(node)]
    if sizes:
        for node in body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                node.value = ast.Constant(rng.randrange(1, 5000))
    imports = [
        ast.parse(f"import {module} as {name}" if module != name else f"import {module}").body[0]
        for module, name in rng.sample(sorted(style.items()), len(style))
    ]
    return ast.unparse(ast.fix_missing_locations(ast.Module([*imports, *body], [])))


def _is_ours(node: ast.stmt) -> bool:
    """Return True for an import that is written anew."""
    return isinstance(node, ast.Import) and all(alias.name in _STYLES[0] for alias in node.names)


class _Undocumented(ast.NodeTransformer):
    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
        return node


class _Renamed(ast.NodeTransformer):
    """Gives each own name another, the same everywhere."""

    def __init__(self, rng: random.Random, imports: dict[str, str]) -> None:
        self._rng, self._names = rng, dict(imports)

    def _other(self, name: str) -> str:
        if name in _KEPT or hasattr(builtins, name) or name.startswith("__"):
            return name
        if name not in self._names:
            letters = self._rng.choices(string.ascii_lowercase, k=6)
            self._names[name] = "".join(letters) + str(len(self._names))
        return self._names[name]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._other(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._other(node.arg))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        value = self.visit(node.value)
        return ast.Attribute(value, self._other(node.attr) if own else node.attr, node.ctx)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name = self._other(node.name)
        return node
