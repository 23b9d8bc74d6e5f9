"""Edits of the source of a Python module that leave the rest of its text alone.

Contract: pure; nothing is run. A source that cannot be parsed, or lacks the class, gives `None`.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Mapping, Sequence

from kernelgym.answers.python_source import python_lines
from kernelgym.retrieval.source import parsed


def with_names(source: str, names: Mapping[str, str]) -> str | None:
    """Return a source with identifiers renamed; strings and comments stay."""
    lines = python_lines(source)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    for token in reversed(tokens):
        if token.type == tokenize.NAME and token.string in names:
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:column] + names[token.string] + line[token.end[1] :]
    return "".join(lines)


def class_named(source: str, name: str) -> ast.ClassDef | None:
    """Return the class of a name in a source for an index; None if the module has none."""
    tree = parsed(source)
    body = [] if tree is None else tree.body
    return next((n for n in body if isinstance(n, ast.ClassDef) and n.name == name), None)


def without_functions(source: str, names: Sequence[str]) -> str | None:
    """Return a source without the module's functions of these names."""
    tree = parsed(source)
    if tree is None:
        return None
    lines = python_lines(source)
    for node in reversed(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            del lines[first - 1 : node.end_lineno]
    return "".join(lines)


def replaced(source: str, node: ast.expr, text: str) -> str:
    """Return a source with an expression replaced by a text."""
    lines = source.encode("utf-8").splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    head = lines[node.lineno - 1][: node.col_offset]
    tail = lines[node.end_lineno - 1][node.end_col_offset :]
    lines[node.lineno - 1 : node.end_lineno] = [head + text.encode("utf-8") + tail]
    return b"".join(lines).decode("utf-8")


def positional_inputs(source: str, kind: str) -> str | None:
    """Return a module whose ``get_init_inputs`` returns the constructor's positional arguments.

    It gave ``[args, kwargs]`` before: a list and a dictionary.

    Args:
        source: The module.
        kind: Name of the class that is constructed.

    Returns:
        None if the values have no place in the constructor's signature.
    """
    tree, made = parsed(source), class_named(source, kind)
    if tree is None or made is None:
        return None
    given = _returned(tree)
    if given is None:
        return None
    args, kwargs = given.elts
    if not isinstance(args, ast.List | ast.Tuple) or not isinstance(kwargs, ast.Dict):
        return None
    values = [ast.unparse(item) for item in args.elts]
    named: dict[str, str] = {}
    for key, item in zip(kwargs.keys, kwargs.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        named[key.value] = ast.unparse(item)
    for name, default in _parameters(made)[len(values) :]:
        if not named:
            break
        text = named.pop(name, default)
        if text is None:
            return None
        values.append(text)
    return None if named else replaced(source, given, f"[{', '.join(values)}]")


def _returned(tree: ast.Module) -> ast.List | ast.Tuple | None:
    """Return the pair of arguments that a module's ``get_init_inputs`` returns, or None."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs":
            last = node.body[-1]
            value = last.value if isinstance(last, ast.Return) else None
            if isinstance(value, ast.List | ast.Tuple) and len(value.elts) == 2:
                return value
    return None


def _parameters(made: ast.ClassDef) -> list[tuple[str, str | None]]:
    """Return a constructor's parameters by position, with their defaults as text."""
    for node in made.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)][1:]
            defaults = [ast.unparse(value) for value in node.args.defaults]
            missing: list[str | None] = [None] * (len(names) - len(defaults))
            return list(zip(names, [*missing, *defaults], strict=False))
    return []
