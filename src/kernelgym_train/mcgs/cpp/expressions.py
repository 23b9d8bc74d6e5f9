"""Which expressions a recognised loop may compute.

Contract: True means that an expression has no side effects and reads only numbers, elements of
known arrays and the results of known functions. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.scope import FLOATS, NARROW, WHOLE, CppScope
from kernelgym_train.mcgs.cpp.syntax import (
    children,
    identifiers,
    index_node,
    polynomial_of,
    text_of,
    walk,
)

BUFFER = "std::vector"
"""Type of the vectors that a loop's body declares."""
NARROW_LIMIT = 2**31
"""The first whole number that 32 bits do not hold."""
_PURE_CALLS = frozenset(
    f"{prefix}{name}{suffix}"
    for name in (
        *("exp", "log", "sqrt", "abs", "fabs", "tanh", "sin", "cos", "pow", "max", "min", "erf"),
        *("floor", "ceil", "exp2", "log2", "fmax", "fmin", "log1p", "expm1"),
        *("fma", "fmod", "round", "trunc", "hypot", "cbrt", "atan", "tan", "sinh", "cosh", "erfc"),
    )
    for prefix in ("std::", "")
    for suffix in ("", "f")
)
"""Functions that a recognised loop may call: their value depends on their arguments alone."""
_EXPRESSIONS = frozenset(
    ("binary_expression", "unary_expression", "parenthesized_expression", "number_literal")
)
_LIBRARY_NUMBERS = frozenset(
    ("INFINITY", "NAN", "FLT_MAX", "FLT_MIN", "DBL_MAX", "DBL_MIN", "M_PI")
)


def is_exact(kind: str, value: Node, scope: CppScope, known: Mapping[str, str]) -> bool:
    """Return True if a number of this type holds the polynomial's value without being cut off."""
    if kind not in WHOLE or polynomial_of(value) is None or not is_whole(value, scope, known):
        return False
    if kind not in NARROW:
        return True
    # Where all parts have 32 bits, so has the value: an overflow is undefined, nothing is cut off.
    kinds = {scope.type_of(name, known) for name in identifiers(value)}
    literals = [text_of(each) for each in walk(value) if each.type == "number_literal"]
    return kinds <= set(NARROW) and all(
        each.isdigit() and int(each) < NARROW_LIMIT for each in literals
    )


def is_whole(node: Node, scope: CppScope, known: Mapping[str, str]) -> bool:
    """Return True if every name in an expression is a whole number."""
    return all(scope.type_of(name, known) in WHOLE for name in identifiers(node))


def is_element(node: Node, scope: CppScope, known: Mapping[str, str]) -> bool:
    """Return True if a node is ``array[subscript]`` with a polynomial of whole numbers."""
    index = index_node(node)
    name = text_of(node.child_by_field_name("argument"))
    if (
        not (name in scope.arrays or known.get(name) == BUFFER)
        or index is None
        or polynomial_of(index) is None
    ):
        return False
    return is_whole(index, scope, known)


def is_pure(node: Node, scope: CppScope, known: Mapping[str, str]) -> bool:
    """Return True if an expression only computes: numbers, elements and known functions."""
    if node.type == "identifier":
        name = text_of(node)
        if name in _LIBRARY_NUMBERS:
            return name not in scope.own
        return scope.type_of(name, known) in (*WHOLE, *FLOATS)
    if node.type == "subscript_expression":
        return is_element(node, scope, known)
    if node.type == "call_expression":
        called, given = (node.child_by_field_name(name) for name in ("function", "arguments"))
        text = re.sub(r"\s", "", text_of(called))
        cast = re.fullmatch(r"static_cast<([\w:]+)>", text)
        limit = re.fullmatch(r"-?std::numeric_limits<\w+>::(infinity|lowest|max|min)", text)
        built_in = bool(cast and cast[1] in (*FLOATS, *WHOLE)) or bool(limit)
        built_in = built_in or (text in (*FLOATS, "int") and text not in scope.own)
        plain = re.sub(r"<(float|double)>$", "", text)
        if not built_in and (plain not in _PURE_CALLS or plain in scope.own):
            return False
        return given is not None and all(is_pure(each, scope, known) for each in children(given))
    if node.type == "conditional_expression":
        condition, *values = children(node)
        # An element that is read in one case alone might not be there in the other.
        if not _elements(values) <= _elements([condition]):
            return False
        compared = condition.type == "binary_expression" and text_of(
            condition.child_by_field_name("operator")
        ) in ("<", ">", "<=", ">=")
        return compared and all(
            is_pure(each, scope, known) for each in (*children(condition), *values)
        )
    if node.type in ("binary_expression", "unary_expression"):
        if text_of(node.child_by_field_name("operator")) not in ("+", "-", "*", "/"):
            return False
    if node.type == "cast_expression":
        kind, value = (node.child_by_field_name(name) for name in ("type", "value"))
        known_kind = text_of(kind) in (*FLOATS, *WHOLE)
        return known_kind and value is not None and is_pure(value, scope, known)
    if node.type in _EXPRESSIONS:
        return all(is_pure(each, scope, known) for each in children(node))
    return False


def _elements(nodes: Iterable[Node]) -> set[str]:
    """Return the texts of the elements that expressions read."""
    found = (each for node in nodes for each in walk(node))
    return {text_of(each) for each in found if each.type == "subscript_expression"}
