"""Whole numbers in C++ expressions: as polynomials, and whether they can change. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.forms import FLOATS, NARROW, WHOLE
from kernelgym_train.mcgs.cpp.polynomial import Polynomial
from kernelgym_train.mcgs.cpp.scope import CppScope, Known
from kernelgym_train.mcgs.cpp.syntax import (
    arguments_of,
    children,
    plain_text,
    polynomial_of,
    text_of,
    walk,
)

NARROW_LIMIT = 2**31
"""Smallest whole number that a signed integer of 32 bits does not hold."""
_WHOLE_CALLS = ("std::min", "std::max", *WHOLE)


def polynomial(node: Node, scope: CppScope, known: Mapping[str, Known]) -> Polynomial | None:
    """Return a C++ expression as a polynomial of unchanging whole numbers; None for others."""
    found = polynomial_of(node, atom_of(scope))
    changed = changing(node, scope, known)
    return found if changed is None else None


def _atom(node: Node, scope: CppScope) -> str | None:
    """Return the text that stands, in polynomials, for a quotient, a size, a cast or a call."""
    is_quotient = node.type == "binary_expression" and text_of(
        node.child_by_field_name("operator")
    ) in ("/", "%")
    is_call = scope.is_size(node) or _whole_call(node) in _WHOLE_CALLS
    is_other = node.type in ("cast_expression", "field_expression")
    return plain_text(node) if is_quotient or is_call or is_other else None


def changing(node: Node, scope: CppScope, known: Mapping[str, Known]) -> str | None:
    """Return a name in an expression that may change or is not a whole number; or None."""
    if scope.is_size(node):
        return None
    if node.type == "field_expression":
        owner, kind = (
            text_of(children(node)[0]),
            scope.text.fields.get(text_of(children(node)[1])),
        )
        changes = {owner, text_of(node)} & scope.written or owner in scope.twice
        return None if kind in WHOLE and not changes else text_of(node)
    if node.type == "cast_expression":
        if plain_text(node.child_by_field_name("type")) not in WHOLE:
            return text_of(node)
        return changing(node.child_by_field_name("value") or node, scope, known)
    if node.type == "call_expression":
        if _whole_call(node) not in _WHOLE_CALLS:
            return text_of(node)
    if node.type == "identifier":
        name = text_of(node)
        return None if scope.fixed(name, known) else name
    inner = arguments_of(node) if node.type == "call_expression" else children(node)
    found = (changing(each, scope, known) for each in inner)
    return next((each for each in found if each is not None), None)


def kind_of(node: Node, scope: CppScope, known: Mapping[str, Known]) -> str:
    """Return the type of a number declared by ``auto``; ``auto`` if it cannot be told."""
    cast = re.match(r"(?:static_cast<([\w:]+)>|([\w:]+))\(", plain_text(node))
    if node.type == "call_expression" and cast and (cast[1] or cast[2]) in (*FLOATS, *WHOLE):
        return cast[1] or cast[2]
    if polynomial_of(node, atom_of(scope)) is None:
        return "auto"
    kinds = {scope.lookup(text_of(n), known) for n in walk(node) if _is_name(n)}
    sizes = any(scope.is_size(each) for each in walk(node))
    if not kinds <= set(WHOLE):
        return "auto"
    return "int" if kinds <= set(NARROW) and not sizes else "int64_t"


def exact_value(
    kind: str, node: Node, scope: CppScope, known: Mapping[str, Known]
) -> Polynomial | None:
    """Return a value as a polynomial, if its type holds the value without cutting it off.

    Args:
        kind: The number's type.
        node: Expression of the number's value.
        scope: Declarations of the function.
        known: Names that the loops around the expression declare.
    """
    found = polynomial(node, scope, known) if kind in WHOLE else None
    if kind not in NARROW or found is None:
        return found
    # Where all parts have 32 bits, so has the value: an overflow is undefined, nothing is cut.
    whole = [each for each in walk(node) if _is_name(each)]
    kinds = {scope.lookup(text_of(each), known) for each in whole}
    literals = [text_of(each) for each in walk(node) if each.type == "number_literal"]
    narrow = kinds <= set(NARROW) and not any(map(scope.is_size, walk(node)))
    small = all(each.isdigit() and int(each) < NARROW_LIMIT for each in literals)
    return found if narrow and small else None


def atom_of(scope: CppScope) -> Callable[[Node], str | None]:
    """Return the function that names the parts of an expression treated as one number."""
    return lambda node: _atom(node, scope)


def _whole_call(call: Node) -> str:
    """Return the name of a called function, or the type that a call casts to."""
    called = plain_text(call.child_by_field_name("function"))
    return re.sub("<.*>", "", re.sub(r"static_cast<([\w:]+)>", r"\1", called))


def _is_name(node: Node) -> bool:
    """Return True for an identifier that is read as a number, not as a function or object."""
    above = node.parent
    return (
        node.type == "identifier"
        and above is not None
        and above.type not in ("field_expression", "qualified_identifier")
        and not (above.type == "call_expression" and node == above.child_by_field_name("function"))
    )
