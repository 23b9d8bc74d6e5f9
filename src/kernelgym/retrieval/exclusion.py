"""Exclusion of entries that would give a problem's answer away.

Contract: pure. `keys_of` returns the keys of a problem; an entry that shares one of them is
excluded, for the first reason in `REASONS` that holds:

- ``id``: the same id or name (a small form of a problem has its id);
- ``source``: the same reference, or the same tree once names, docstrings, imports, annotations and
  numbers are out;
- ``operators``: the same operators in the same order, or the same canonical form where the suite
  has one.

It does not cover kernels that happen to solve another problem: only a judge can tell.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from functools import lru_cache

from kernelgym.errors import ProblemError
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.idioms import DEPTHWISE
from kernelgym.retrieval.operators import operators
from kernelgym.retrieval.source import aliases_of, parsed
from kernelgym.suites.kernelbench_small import SMALL
from kernelgym.types import Problem, text_digest

REASONS = ("id", "source", "operators")
"""Reasons for which an entry is excluded, in the order in which they are counted."""

_UNREAD = ("get_inputs", "get_init_inputs")
_BUILTINS = frozenset(dir(builtins))

Keys = dict[str, tuple[str, ...]]
"""Keys of a problem by reason; two problems that share a key are the same for that reason."""


def keys_of(problem: Problem) -> Keys:
    """Return the keys of a problem, by reason of exclusion."""
    return _keys(problem.id, problem.name, problem.source, form_of(problem))


def keys_of_entry(entry: IndexEntry) -> Keys:
    """Return the keys of an entry's problem, by reason of exclusion."""
    return _keys(entry.problem_id, entry.name, entry.reference, entry.form)


def form_of(problem: Problem) -> str:
    """Return the canonical form of a Synthetic problem; empty for a problem of another suite."""
    if problem.suite != "Synthetic":
        return ""
    from kernelgym.suites.synthetic import canonical_form

    try:
        return canonical_form(problem)
    except ProblemError:
        return ""  # a problem that names the suite and is not in it


def _keys(problem_id: str, name: str, source: str, form: str) -> Keys:
    # Empty texts are left out: two problems without a name are not the same.
    names = [f"id {problem_id.removesuffix(SMALL)}"] if problem_id else []
    names += [f"name {name}"] if name else []
    sources = [f"text {text_digest(source)}"] if source else []
    tree = tree_key(source)
    sources += [f"tree {tree}"] if tree else []
    # A function says less of its groups than a module: both must be excluded for each other.
    computed = [name.removeprefix(DEPTHWISE) for name in operators(source)]
    forms = [f"operators {' '.join(computed)}"] if computed else []
    forms += [f"form {form}"] if form else []
    return dict(zip(REASONS, map(tuple, (names, sources, forms)), strict=True))


@lru_cache(maxsize=4096)
def tree_key(source: str) -> str:
    """Return a digest of a module's syntax tree; empty if it cannot be parsed.

    Names of the module's own are numbered in the order in which they come up; docstrings,
    annotations, numbers, imports and the functions that draw inputs are left out. What is imported
    goes by its whole dotted name.
    """
    tree = parsed(source)
    if tree is None:
        return ""
    writer = _Writer(aliases_of(tree))
    words: list[str] = []
    try:
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name not in _UNREAD:
                words += writer.words(node)
    except RecursionError:
        return ""
    return text_digest(" ".join(words)) if words else ""


class _Writer:
    """Writes a syntax tree as words, without the author's names and numbers."""

    def __init__(self, aliases: dict[str, str]) -> None:
        self._aliases = aliases
        self._numbers: dict[str, str] = {}

    def _name(self, name: str) -> str:
        if name in self._aliases:
            return self._aliases[name]
        if name in _BUILTINS:
            return name
        return self._numbers.setdefault(name, f"n{len(self._numbers)}")

    def words(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Import() | ast.ImportFrom():
                return
            case ast.Constant(value=value):
                number = isinstance(value, int | float | complex) and not isinstance(value, bool)
                yield "#" if number else repr(value)
                return
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                yield from self.words(node.operand)
                return
            case ast.Name(id=name):
                yield self._name(name)
                return
            case ast.Attribute(value=value, attr=attr):
                if (dotted := self._dotted(node)) is not None:
                    yield dotted
                    return
                yield from self.words(value)
                own = isinstance(value, ast.Name) and value.id == "self"
                yield f".{self._name(f'self.{attr}') if own else attr}"
                return
            case ast.AnnAssign(target=target, value=value):
                yield "Assign"
                yield from self.words(target)
                if value is not None:
                    yield from self.words(value)
                return
            case ast.arg(arg=name):
                yield self._name(name)
                return
        yield type(node).__name__
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield self._name(node.name)
        for field, value in ast.iter_fields(node):
            if field in ("returns", "type_comment", "type_params", "ctx"):
                continue
            if field in ("arg", "attr") and isinstance(value, str):
                yield value
            for item in _body(node, value) if isinstance(value, list) else [value]:
                if isinstance(item, ast.AST):
                    yield from self.words(item)

    def _dotted(self, node: ast.expr) -> str | None:
        """Return the dotted name of an imported object in an expression; None for others."""
        if isinstance(node, ast.Name):
            return self._aliases.get(node.id)
        if isinstance(node, ast.Attribute) and (owner := self._dotted(node.value)) is not None:
            return f"{owner}.{node.attr}"
        return None


def _body(node: ast.AST, items: list[object]) -> list[object]:
    """Return a list of statements without the docstring that it begins with."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef) and items is node.body and items:
        first = items[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            return items[1:]
    return items
