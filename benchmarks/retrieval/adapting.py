"""A shown kernel as an answer to another problem: its names and sizes changed, or two in a row.

Contract: pure text. `joined` builds the module that a lazy reader of examples would answer with. It
takes the constructor of the problem asked, and of each shown kernel its functions and the body of
its ``forward``, one after the other. What a shown kernel calls its parameters, and the numbers that
its reference holds, become those of the problem asked: numbers of the same name at module level,
and of the same operator in ``forward``, in their order, but for those that both hold. Whole numbers
below 3 are kept, since they stand for other things, too.

It does not write code: a shape that needs another loop stays wrong. It gives an empty text where
arguments or parameters do not go round, or a module is not of the usual form.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

__all__ = ["joined", "numbers"]

Numbers = Mapping[float, float]

_NUMBER = re.compile(r"(-?)(?<![\w.])(\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?=f?\b)")
_LEAST = 3
"""Whole numbers below it are kept."""


def joined(shown: Sequence[tuple[str, str]], asked: str) -> str:
    """Return a module for the problem asked; empty if none can be made.

    Args:
        shown: Reference and kernel of each example, in the order in which they are applied.
        asked: Reference of the problem.
    """
    tree = ast.parse(asked)
    model = _class(tree, "Model")
    forward = _method(model, "forward")
    if model is None or forward is None:
        return ""
    own = _attributes(_method(model, "__init__"))
    arguments = _arguments(forward)
    body: list[ast.stmt] = []
    methods: list[ast.stmt] = []
    calls = ""
    for place, (reference, kernel) in enumerate(shown):
        suffix = f"_{place}" if len(shown) > 1 else ""
        part = _part(reference, kernel, tree, own, suffix)
        if part is None:
            return ""
        functions, method, taken, used = part
        if used > len(arguments) + bool(calls):
            return ""
        given = [calls] if calls else []
        given += arguments[: used - len(given)]
        arguments, own = arguments[used - bool(calls) :], own[taken:]
        calls = f"self.{method.name}({', '.join(given)})"
        body += functions
        methods.append(method)
    made = _constructor(tree, model)
    entered = ", ".join(["self", *_arguments(forward)])
    methods += ast.parse(f"def forward({entered}):\n    return {calls}\n").body
    new = ast.parse("class ModelNew(nn.Module):\n    pass\n").body[0]
    assert isinstance(new, ast.ClassDef)
    new.body = [*made[1], *methods]
    imports = ast.parse("import torch\nimport torch.nn as nn\n").body
    return ast.unparse(ast.fix_missing_locations(ast.Module([*imports, *body, *made[0], new], [])))


def numbers(reference: str, asked: str) -> dict[float, float]:
    """Return what numbers of a reference become in the problem asked."""
    theirs, ours = _numbers(ast.parse(reference)), _numbers(ast.parse(asked))
    found: dict[float, float] = {}
    for key, values in theirs.items():
        others = ours.get(key, [])
        own = [value for value in values if value not in others]
        for value, other in zip(own, (v for v in others if v not in values), strict=False):
            if not (value == int(value) and abs(value) < _LEAST):
                found.setdefault(value, other)
    return found


def _part(
    reference: str, kernel: str, asked: ast.Module, own: Sequence[str], suffix: str
) -> tuple[list[ast.stmt], ast.FunctionDef, int, int] | None:
    """Return a kernel's functions, its forward, and how many parameters and arguments it takes."""
    tree = ast.parse(kernel)
    model = _class(tree, "ModelNew")
    forward = _method(model, "forward")
    if model is None or forward is None:
        return None
    theirs = _attributes(_method(model, "__init__"))
    if len(theirs) > len(own):
        return None
    functions = [node for node in tree.body if node is not model]
    names = {name: f"{name}{suffix}" for node in functions for name in _defined(node)}
    changed = numbers(reference, ast.unparse(asked))
    writer = _Adapted(names, dict(zip(theirs, own, strict=False)), changed)
    written = [writer.visit(node) for node in functions]
    method = writer.visit(forward)
    method.name = f"part{suffix}"
    return written, method, len(theirs), len(_arguments(forward))


def _constructor(tree: ast.Module, model: ast.ClassDef) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return module-level numbers that a constructor reads, and the constructor."""
    made = _method(model, "__init__")
    if made is None:
        return [], []
    read = {node.id for node in ast.walk(made) if isinstance(node, ast.Name)}
    read -= {argument.arg for argument in made.args.args}
    return [n for n in tree.body if isinstance(n, ast.Assign) and read & set(_defined(n))], [made]


class _Adapted(ast.NodeTransformer):
    """Gives functions, parameters and numbers other names and values."""

    def __init__(
        self, names: Mapping[str, str], attributes: Mapping[str, str], changed: Numbers
    ) -> None:
        self._names, self._attributes, self._changed = names, attributes, changed

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name = self._names.get(node.name, node.name)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = self._attributes.get(node.attr, node.attr)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        value = _value(node)
        if value is not None and value in self._changed:
            return _constant(self._changed[value], isinstance(_value(node), int))
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = _value(node)
        if value is not None and value in self._changed:
            return _constant(self._changed[value], isinstance(value, int))
        if isinstance(node.value, str) and "#include" in node.value:
            return ast.Constant(_NUMBER.sub(self._other, node.value))
        return node

    def _other(self, found: re.Match[str]) -> str:
        sign, digits = found.groups()
        for kept, text in (("", f"{sign}{digits}"), (sign, digits)):
            if (other := self._changed.get(float(text))) is not None:
                whole = digits.isdigit() and other == int(other)
                return f"{kept}{int(other) if whole else float(other)!r}"
        return found[0]


def _constant(value: float, whole: bool) -> ast.expr:
    number = int(value) if whole and value == int(value) else float(value)
    return ast.parse(repr(number), mode="eval").body


def _numbers(tree: ast.Module) -> dict[str, list[float]]:
    """Return a module's numbers, in order, by name or by the operator that takes them."""
    found: dict[str, list[float]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and (value := _value(statement.value)) is not None:
            for name in _defined(statement):
                found.setdefault(f"size {name}", []).append(value)
    model = _class(tree, "Model")
    for method in model.body if model is not None else []:
        nodes = [node for node in ast.walk(method) if isinstance(node, ast.Call | ast.BinOp)]
        for node in sorted(nodes, key=lambda node: (node.end_lineno, node.end_col_offset)):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                named: list[tuple[str, ast.expr]] = [(called, each) for each in node.args]
                named += [(f"{called} {each.arg}", each.value) for each in node.keywords]
            else:
                kind = type(node.op).__name__
                named = [(f"{kind} left", node.left), (f"{kind} right", node.right)]
            for key, each in named:
                if (value := _value(each)) is not None:
                    found.setdefault(key, []).append(value)
    return found


def _value(node: ast.expr) -> float | None:
    """Return the number that an expression is; None if it is none."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand)
        return None if value is None else -value
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return None
    return node.value if isinstance(node.value, int | float) else None


def _class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)


def _method(model: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    body = model.body if model is not None else []
    return next((n for n in body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _arguments(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in function.args.args[1:]]


def _attributes(made: ast.FunctionDef | None) -> list[str]:
    """Return what a constructor sets, in order."""
    return [
        target.attr
        for node in (made.body if made is not None else [])
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    ]


def _defined(node: ast.stmt) -> list[str]:
    """Return names that a statement at module level gives to its own things."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []
