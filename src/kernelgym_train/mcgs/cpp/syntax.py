"""Functions that read nodes of tree-sitter's syntax tree. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

from kernelgym_train.mcgs.cpp.polynomial import Polynomial

_MOST_DEPTH = 100  # levels; readers take up to eight frames a level, and Python allows 1,000


def parsed(cpp: str) -> Node:
    """Return the root of a C++ text's syntax tree."""
    return Parser(Language(tree_sitter_cpp.language())).parse(cpp.encode()).root_node


def text_of(node: Node | None) -> str:
    """Return the text of a node of C++ syntax; empty without a node."""
    return "" if node is None or node.text is None else node.text.decode()


def children(node: Node) -> list[Node]:
    """Return the named children of a node of C++ syntax, without comments."""
    return [child for child in node.named_children if child.type != "comment"]


def walk(node: Node) -> Iterator[Node]:
    """Yield a node of C++ syntax and all below it, from left to right."""
    left = [node]
    while left:
        node = left.pop()
        yield node
        left += reversed(node.children)


def is_deep(node: Node) -> bool:
    """Return True if a syntax tree is nested more deeply than the rules' recursive readers go."""
    level = [node]
    for _ in range(_MOST_DEPTH):
        level = [child for each in level for child in each.children]
    return bool(level)


def root_of(node: Node) -> Node:
    """Return the root of the C++ syntax tree that a node is in."""
    while node.parent is not None:
        node = node.parent
    return node


def identifiers(node: Node) -> set[str]:
    """Return every name that a C++ or CUDA expression reads."""
    return {text_of(each) for each in walk(node) if each.type == "identifier"}


def arguments_of(call: Node) -> list[Node]:
    """Return the arguments of a C++ call; none if the node is not a call."""
    given = call.child_by_field_name("arguments")
    return [] if given is None else children(given)


def sides_of(node: Node) -> tuple[Node, str, Node] | None:
    """Return left side, operator and right side of a C++ operation or assignment; else None."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    sign = node.child_by_field_name("operator")
    return None if left is None or right is None else (left, text_of(sign), right)


def index_node(node: Node) -> Node | None:
    """Return the only subscript of ``array[subscript]``; None if there are several."""
    indices = node.child_by_field_name("indices")
    inner = [] if indices is None else children(indices)
    return inner[0] if len(inner) == 1 else None


def polynomial_of(
    node: Node, atom: Callable[[Node], str | None] = lambda node: None
) -> Polynomial | None:
    """Return a whole-number expression of ``+``, ``-`` and ``*`` as a polynomial.

    Args:
        node: The expression.
        atom: Function that returns the name by which another expression counts as one number, or
            None.
    """
    if node.type == "identifier":
        return Polynomial.name(text_of(node))
    if node.type == "number_literal":
        # Unsigned literals may wrap around at 32 bits.
        text = text_of(node).replace("'", "").rstrip("lL")
        digits = text.removeprefix("-")
        octal = len(digits) > 1 and digits.startswith("0")
        return Polynomial.number(int(text)) if digits.isdigit() and not octal else None
    if node.type == "parenthesized_expression":
        inner = children(node)
        return polynomial_of(inner[0], atom) if len(inner) == 1 else None
    if node.type == "binary_expression":
        sides = sides_of(node)
        if sides is not None and (operator := sides[1]) in ("+", "-", "*"):
            one, other = polynomial_of(sides[0], atom), polynomial_of(sides[2], atom)
            if one is None or other is None:
                return None
            if operator == "*":
                return one.times(other)
            return one + other if operator == "+" else one - other
    negated = node.child_by_field_name("argument")
    if node.type == "unary_expression" and text_of(node).startswith("-") and negated is not None:
        found = polynomial_of(negated, atom)
        return None if found is None else Polynomial.number(0) - found
    name = atom(node)
    return None if name is None else Polynomial.name(name)


def plain_text(node: Node | None) -> str:
    """Return the text of a node of C++ syntax without blanks."""
    return "".join(text_of(node).split())


def declared_name(node: Node | None) -> Node | None:
    """Return the identifier that a C++ declarator of any form declares, or None."""
    while node is not None and not node.type.endswith("identifier"):
        node = node.child_by_field_name("declarator") or (
            children(node)[-1] if node.type == "reference_declarator" else None
        )
    return node
