"""One pass over a kernel's syntax tree: everything the rules ask about.

Contract: `survey` visits every node once, without recursion. Names are resolved through the
module's imports (``F.relu`` is ``torch.nn.functional.relu``), not through assignments.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

__all__ = ["Facts", "Function", "survey"]

_Def = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Function:
    """One function or method; functions nested in it are functions of their own."""

    node: _Def
    name: str
    owner: str
    """Name of the class it is a method of; empty for a plain function."""
    nodes: list[ast.AST] = field(default_factory=list)
    jitted: bool = False
    """Decorated with, or passed to, ``triton.jit``."""
    called: set[str] = field(default_factory=set)
    """Names and attribute names it mentions."""


@dataclass(slots=True)
class Facts:
    """What is known of a module."""

    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    """Local name -> dotted name."""
    imported: list[tuple[str, int]] = field(default_factory=list)
    """(dotted module name, line) of every import."""
    functions: list[Function] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    nodes: list[ast.AST] = field(default_factory=list)
    strings: list[tuple[str, int]] = field(default_factory=list)
    """(text, line) of every string that is not a docstring."""
    live: set[str] = field(default_factory=set)
    """Top-level names and method names that `ModelNew` or the module's own statements reach."""
    forward: list[Function] = field(default_factory=list)
    """Functions other than kernels that run when `ModelNew.forward` runs."""
    layers: dict[str, str] = field(default_factory=dict)
    """Attribute of ModelNew -> the torch.nn class it is built from."""

    def dotted(self, node: ast.AST) -> str:
        """Return the dotted name that an expression stands for, or an empty string."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.imports.get(node.id, node.id))
        return ".".join(reversed(parts))

    def external(self, node: ast.AST) -> str:
        """Return the dotted name if it begins with an imported module, or an empty string."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in self.imports:
            return self.dotted(node)
        return ""


def survey(tree: ast.Module) -> Facts:
    """Return the facts about a module."""
    facts = Facts(tree)
    docstrings: set[int] = set()
    # (node, innermost enclosing function, outermost enclosing class)
    stack: list[tuple[ast.AST, Function | None, str]] = [(tree, None, "")]
    while stack:
        node, function, owner = stack.pop()
        facts.nodes.append(node)
        if function is not None:
            function.nodes.append(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = Function(node, node.name, owner)
            facts.functions.append(function)
        elif isinstance(node, ast.ClassDef):
            owner = owner or node.name
        elif isinstance(node, ast.Call):
            facts.calls.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            _note_import(facts, node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in docstrings:
                facts.strings.append((node.value, node.lineno))
        elif function is not None:
            if isinstance(node, ast.Name):
                function.called.add(node.id)
            elif isinstance(node, ast.Attribute):
                function.called.add(node.attr)
        stack.extend((child, function, owner) for child in ast.iter_child_nodes(node))
    _mark_jitted(facts)
    _note_reach(facts)
    _note_layers(facts)
    return facts


def _note_import(facts: Facts, node: ast.Import | ast.ImportFrom) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            facts.imported.append((alias.name, node.lineno))
            target = alias.name if alias.asname else alias.name.partition(".")[0]
            facts.imports[alias.asname or target] = target
        return
    module = node.module or ""
    for alias in node.names:
        facts.imported.append((f"{module}.{alias.name}", node.lineno))
        facts.imports[alias.asname or alias.name] = f"{module}.{alias.name}"


def _mark_jitted(facts: Facts) -> None:
    wrapped = {
        arg.id
        for call in facts.calls
        if facts.dotted(call.func) == "triton.jit"
        for arg in call.args
        if isinstance(arg, ast.Name)
    }
    for function in facts.functions:
        decorators = (
            facts.dotted(item.func if isinstance(item, ast.Call) else item)
            for item in function.node.decorator_list
        )
        function.jitted = function.name in wrapped or any(
            name in ("triton.jit", "triton.runtime.jit.jit") or name.endswith("gluon.jit")
            for name in decorators
        )


def _note_reach(facts: Facts) -> None:
    """Find what is reachable from `ModelNew`, by the names that are mentioned."""
    mentions: dict[str, set[str]] = {}
    for statement in facts.tree.body:
        key = ""
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            key = statement.name
        bag = mentions.setdefault(key, set())
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                bag.add(node.id)
    todo = ["ModelNew", ""]
    while todo:
        name = todo.pop()
        if name not in facts.live:
            facts.live.add(name)
            todo.extend(mentions.get(name, ()))

    by_name: dict[str, list[Function]] = {}
    for function in facts.functions:
        by_name.setdefault(function.name, []).append(function)
        if function.owner and function.name in ("forward", "apply", "__call__"):
            by_name.setdefault(function.owner, []).append(function)  # Function.apply, instances
    pending = [f for f in facts.functions if f.owner == "ModelNew" and f.name == "forward"]
    seen: set[int] = set()
    while pending:
        function = pending.pop()
        if id(function) in seen or function.jitted:
            continue
        seen.add(id(function))
        facts.forward.append(function)
        for name in sorted(function.called & by_name.keys()):
            pending.extend(f for f in by_name[name] if f.name not in ("__init__", "backward"))


def _note_layers(facts: Facts) -> None:
    for function in facts.functions:
        if function.owner != "ModelNew":
            continue
        for node in function.nodes:
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
                continue
            kind = facts.external(node.value.func)
            if not kind.startswith("torch.nn."):
                continue
            for target in node.targets:
                if isinstance(target, ast.Attribute):
                    facts.layers[target.attr] = kind.removeprefix("torch.nn.")
