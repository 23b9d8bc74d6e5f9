"""Facts about a kernel's module, gathered in one pass over its syntax tree for the rules.

Contract: `survey` visits every node once, without recursion. Names are resolved through the
module's imports (``F.relu`` is ``torch.nn.functional.relu``), not through assignments.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TypeVar, cast

from kernelgym.languages import LANGUAGES

_Def = ast.FunctionDef | ast.AsyncFunctionDef
_Node = TypeVar("_Node", bound=ast.AST)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SILENT_FIELDS = frozenset("ctx op ops id attr arg name names module level kind".split())
_HOOKS = ("pre_hook", "post_hook")  # of Triton's autotuner and its configs
_DECORATORS = {
    own.decorator: (
        name,
        re.compile("|".join(filter(None, (re.escape(own.decorator), own.decorator_aliases)))),
    )
    for name, entry in LANGUAGES.items()
    if (own := entry.own_kernel).decorator
}
"""Language and pattern of the names of each decorator that turns a function into a kernel."""


@dataclass(slots=True)
class Function:
    """One function or method; functions nested in it are functions of their own."""

    node: _Def
    name: str
    owner: str
    """Name of the class it is a method of; empty for a plain function."""
    nodes: list[ast.AST] = field(default_factory=list)
    kernel_in: frozenset[str] = frozenset()
    """Languages whose decorator, such as ``triton.jit``, makes a kernel of it."""
    mentions: set[str] = field(default_factory=set)
    """Names and names of attributes that the function mentions."""

    @property
    def body(self) -> list[ast.AST]:
        """Return its nodes without those of decorators, defaults and annotations.

        Python runs those once, where the function is defined; a compiler of kernels never sees
        them.
        """
        node = self.node
        parts = [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
        outside = {id(inner) for part in parts for inner in ast.walk(part)}
        return [inner for inner in self.nodes if id(inner) not in outside]

    @property
    def jitted(self) -> bool:
        """Whether a language makes the function a kernel."""
        return bool(self.kernel_in)


@dataclass(slots=True)
class Facts:
    """Facts about a kernel's module that the screening rules read."""

    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    """Dotted name of each imported local name."""
    imported: list[tuple[str, int]] = field(default_factory=list)
    """Dotted module name and line of every import."""
    functions: list[Function] = field(default_factory=list)
    nodes: dict[type[ast.AST], list[ast.AST]] = field(default_factory=dict)
    """All nodes by type, without operators and contexts."""
    mentions: dict[str, set[str]] = field(default_factory=dict)
    """Names mentioned in each top-level function or class; under the empty name, in the rest."""
    strings: list[tuple[str, int]] = field(default_factory=list)
    """Text and line of every string that is not a docstring."""
    live: set[str] = field(default_factory=set)
    """Top-level names and method names that `ModelNew` or the module's own statements reach."""
    forward: list[Function] = field(default_factory=list)
    """Functions other than kernels that run when `ModelNew.forward` runs."""
    layers: dict[str, str] = field(default_factory=dict)
    """Class of torch.nn that each attribute of ModelNew is built from."""

    def of(self, kind: type[_Node]) -> list[_Node]:
        """Return the nodes of exactly that type."""
        return cast("list[_Node]", self.nodes.get(kind, []))

    @property
    def calls(self) -> list[ast.Call]:
        """Every call."""
        return self.of(ast.Call)

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
    nodes = facts.nodes
    docstrings: set[int] = set()
    # (node, innermost enclosing function, outermost enclosing class, names its statement mentions)
    stack: list[tuple[ast.AST, Function | None, str, set[str]]] = []
    for statement in tree.body:
        name = statement.name if isinstance(statement, _NAMED) else ""
        stack.append((statement, None, "", facts.mentions.setdefault(name, set())))
    while stack:
        node, function, owner, mentions = stack.pop()
        kind = type(node)
        if kind in nodes:
            nodes[kind].append(node)
        else:
            nodes[kind] = [node]
        if function is not None:
            function.nodes.append(node)
        if isinstance(node, ast.Name):
            mentions.add(node.id)
            if function is not None:
                function.mentions.add(node.id)
            continue  # nothing below
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and id(node) not in docstrings:
                facts.strings.append((node.value, node.lineno))
            continue
        if isinstance(node, ast.Attribute):
            if function is not None:
                function.mentions.add(node.attr)
        elif isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant):
                docstrings.add(id(node.value))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = Function(node, node.name, owner)
            facts.functions.append(function)
        elif isinstance(node, ast.ClassDef):
            owner = owner or node.name
        for child in _children(node):
            stack.append((child, function, owner, mentions))
    for node in facts.of(ast.Import) + facts.of(ast.ImportFrom):
        _note_import(facts, node)
    _mark_kernels(facts)
    _note_reach(facts)
    _note_layers(facts)
    return facts


def _children(node: ast.AST) -> list[ast.AST]:
    """Return the child nodes, without operators and contexts, which say nothing here."""
    found: list[ast.AST] = []
    for name in node._fields:
        if name not in _SILENT_FIELDS:
            value = getattr(node, name, None)
            if isinstance(value, list):
                found += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


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


def _mark_kernels(facts: Facts) -> None:
    wrapped: dict[str, set[str]] = {}  # what is decorated by a call: name -> decorators
    for call in facts.calls:
        if (decorator := facts.dotted(call.func)) in _DECORATORS:
            for arg in call.args:
                if isinstance(arg, ast.Name):
                    wrapped.setdefault(arg.id, set()).add(decorator)
    for function in facts.functions:
        names = {
            facts.dotted(item.func if isinstance(item, ast.Call) else item)
            for item in function.node.decorator_list
        }
        called = wrapped.get(function.name, set())
        function.kernel_in = frozenset(
            language
            for decorator, (language, pattern) in _DECORATORS.items()
            if decorator in called or any(map(pattern.fullmatch, names))
        )


def _note_reach(facts: Facts) -> None:
    """Find what is reachable from `ModelNew`, by the names that are mentioned."""
    todo = ["ModelNew", ""]
    while todo:
        name = todo.pop()
        if name not in facts.live:
            facts.live.add(name)
            todo.extend(facts.mentions.get(name, ()))

    by_name: dict[str, list[Function]] = {}
    for function in facts.functions:
        by_name.setdefault(function.name, []).append(function)
        if function.owner and function.name in ("forward", "apply", "__call__"):
            by_name.setdefault(function.owner, []).append(function)  # Function.apply, instances
    pending = [f for f in facts.functions if f.owner == "ModelNew" and f.name == "forward"]
    # Configs, and with them their hooks, are often made away from the decorator.
    words = (word for call in facts.calls for word in call.keywords)
    hooks: list[ast.AST] = [word.value for word in words if word.arg in _HOOKS]
    seen: set[int] = set()
    while pending:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        if function.jitted:
            function = _launching(function, hooks)
            hooks = []  # once is enough
        facts.forward.append(function)
        for name in sorted(function.mentions & by_name.keys()):
            # Taken out, so that many functions of one name are not looked at again and again.
            found = by_name.pop(name)
            pending.extend(f for f in found if f.name not in ("__init__", "backward"))


def _launching(kernel: Function, hooks: list[ast.AST]) -> Function:
    """Return what runs on the host at a launch: hooks, heuristics, pruning."""
    nodes = [inner for part in (*kernel.node.decorator_list, *hooks) for inner in ast.walk(part)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return Function(kernel.node, kernel.name, kernel.owner, nodes, mentions=names)


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
