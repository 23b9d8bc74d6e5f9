"""Which expressions can be computed for several iterations at once, in vectors. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.forms import CppFunction
from kernelgym_train.mcgs.cpp.syntax import children, text_of

BYTES: Mapping[str, int] = MappingProxyType({"float": 4, "double": 8})
"""Bytes of each type of number that vectors can hold."""
_ARITHMETIC = (
    *("binary_expression", "parenthesized_expression", "unary_expression", "number_literal"),
    *("identifier", "subscript_expression"),
)


def is_arithmetic(
    function: CppFunction, node: Node, along: str, kind: str, known: Mapping[str, str]
) -> bool:
    """Return True if a C++ expression can be computed in vectors.

    Args:
        function: Function around the expression.
        node: The expression.
        along: Loop variable along which a vector holds neighbouring elements.
        kind: Type that everything in it must have: ``float`` or ``double``.
        known: Types of numbers that the loops around the expression declare.
    """
    if node.type == "subscript_expression":
        if function.plain_name(node) is None or function.array_of(node).element != kind:
            return False
        return function.stride(node, along) in (0, 1)
    if node.type == "identifier":
        return known.get(text_of(node), function.types.get(text_of(node))) == kind
    if node.type == "number_literal":  # a double would widen a float's arithmetic
        return (kind == "float") == text_of(node).endswith(("f", "F")) and "." in text_of(node)
    if node.type not in _ARITHMETIC:
        return False
    return all(is_arithmetic(function, each, along, kind, known) for each in children(node))


def fresh(wanted: str, taken: set[str]) -> str:
    """Return a name that is not taken, and add it to the taken names."""
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted
