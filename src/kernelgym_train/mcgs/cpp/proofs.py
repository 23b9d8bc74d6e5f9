"""Proofs about a recognised loop: independent iterations, sums, invariants.

Contract: True means that a property is proven. False means only that no proof was found. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.forms import (
    WHOLE,
    CppAssign,
    CppBuffer,
    CppElement,
    CppFunction,
    CppLet,
    CppLoop,
    CppOther,
    CppStatement,
)
from kernelgym_train.mcgs.cpp.polynomial import Polynomial
from kernelgym_train.mcgs.cpp.syntax import arguments_of, children, identifiers, text_of, walk


def accesses(body: tuple[CppStatement, ...]) -> list[CppElement]:
    """Return every array element that C++ statements read or write."""
    return list(_accesses(body, (), {}))


def _accesses(
    body: tuple[CppStatement, ...],
    loops: tuple[CppLoop, ...],
    numbers: dict[str, Polynomial | None],
) -> Iterator[CppElement]:
    """Yield the elements that C++ code accesses, with the values of whole numbers in subscripts."""
    numbers = dict(numbers)
    for statement in body:
        if isinstance(statement, CppLoop):
            yield from _accesses(statement.body, (*loops, statement), numbers)
        elif not isinstance(statement, CppBuffer):
            for each in statement.elements:
                index = tuple(one and one.replaced(numbers) for one in each.index)
                yield dataclasses.replace(each, index=index, loops=(*loops, *each.loops))
        if isinstance(statement, CppLet) and statement.exact is not None:
            numbers[statement.name] = statement.exact.replaced(numbers)


def carried(body: tuple[CppStatement, ...], own: frozenset[str] = frozenset()) -> set[str]:
    """Return the numbers that statements assign and that are declared outside of them."""
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, CppLet):
            own = own | {statement.name}
        elif isinstance(statement, CppLoop):
            found |= carried(statement.body, own)
        elif isinstance(statement, CppOther):
            found |= statement.assigned - own
            own = own | set(statement.declared)
        elif (
            isinstance(statement, CppAssign)
            and statement.target.type == "identifier"
            and text_of(statement.target) not in own
        ):
            found.add(text_of(statement.target))
    return found


def has_independent_iterations(
    function: CppFunction, loop: CppLoop, ignoring: frozenset[str] = frozenset()
) -> bool:
    """Return True if iterations of a C++ loop may run in any order, or at once.

    No number is carried from one iteration to the next, and each iteration accesses its own range
    of every array that is written: ``stride * variable + offset`` with the offset below
    the stride, by the bounds of the loops inside.

    Args:
        function: Function around the loop.
        loop: The loop.
        ignoring: Numbers that may be carried nevertheless, such as sums.
    """
    if carried(loop.body) - ignoring:
        return False
    own = _buffers(loop.body)
    found = [each for each in accesses(loop.body) if each.array not in own]
    for array in {access.array for access in found if access.writes}:
        if not function.arrays[array].output:
            return False  # other memory may be the same
        there = [each for each in found if each.array == array]
        dims = range(max(len(each.index) for each in there))
        if not any(_is_apart(loop, there, dim) for dim in dims):
            return False
    return True


def _is_apart(loop: CppLoop, found: list[CppElement], dim: int) -> bool:
    """Return True if each iteration accesses its own range of one subscript of an array."""
    shared: set[tuple[Polynomial, Polynomial]] = set()
    for access in found:
        index = access.index[dim] if dim < len(access.index) else None
        stride = None if index is None else index.coefficient(loop.variable)
        if index is None or stride is None or loop.variable in stride.names or not stride.terms:
            return False
        inner = {each.variable: each for each in access.loops}
        if stride.names & set(inner):
            return False
        rest = index - stride * Polynomial.name(loop.variable)
        base = rest.without(inner)
        if _names_a_let(loop.body, index) or not _fits(rest - base, inner, stride):
            return False
        shared.add((stride, base))
    return len(shared) == 1


def _buffers(body: tuple[CppStatement, ...]) -> set[str]:
    """Return the names of vectors that each iteration of a loop declares for itself."""
    found = {each.name for each in body if isinstance(each, CppBuffer)}
    return found.union(*(_buffers(each.body) for each in body if isinstance(each, CppLoop)))


def _names_a_let(body: tuple[CppStatement, ...], index: Polynomial) -> bool:
    """Return True if a subscript depends on a number declared in the loop's body."""
    for statement in body:
        if isinstance(statement, CppLet) and statement.name in index.names:
            return True
        if isinstance(statement, CppOther) and statement.is_declaration:
            if set(statement.declared) & index.names:
                return True
        if isinstance(statement, CppLoop) and _names_a_let(statement.body, index):
            return True
    return False


def _fits(offset: Polynomial, inner: dict[str, CppLoop], stride: Polynomial) -> bool:
    """Return True if an offset, read as a number in mixed radix, lies in [0, stride)."""
    reached = Polynomial.number(1)  # offsets so far are below it
    left = offset
    while left.terms:
        for name in sorted(left.names & set(inner)):
            loop = inner[name]
            low = loop.lower.constant
            if left.coefficient(name) == reached and low is not None and low >= 0:
                left = left - reached * Polynomial.name(name)
                reached = reached * loop.upper
                break
        else:
            return False
    if reached == stride:
        return True
    # The offset is 0, or its range is constant: any stride that is at least as long fits.
    size, room = reached.constant, stride.constant
    return size is not None and room is not None and size <= room


def reductions(loop: CppLoop) -> dict[str, str] | None:
    """Return the operator of each sum, maximum and minimum that an innermost loop carries.

    None if the loop carries a number in another way.
    """
    found: dict[str, str] = {}
    wanted = carried(loop.body)
    for statement in loop.body:
        if isinstance(statement, CppLoop | CppBuffer):
            return None
        if isinstance(statement, CppOther):
            name, extreme = _greatest(statement.node)
            others = (wanted - {name}) & identifiers(statement.node)
            if name in wanted and not others and found.get(name, extreme) == extreme:
                found[name] = extreme
            elif wanted & identifiers(statement.node):
                return None
            continue
        if isinstance(statement, CppLet):
            if wanted & identifiers(statement.value):
                return None
            continue
        name = text_of(statement.target)
        if name not in wanted:
            if wanted & identifiers(statement.node):
                return None
            continue
        kind = _reduced_by(statement, name)
        if kind is None or found.get(name, kind) != kind:
            return None
        if len(identifiers(statement.value) & wanted - {name}) > 0:
            return None
        found[name] = kind
    return found


def _reduced_by(statement: CppAssign, name: str) -> str | None:
    value = statement.value
    if statement.operator == "+=":
        return None if name in identifiers(value) else "+"
    if statement.operator == "=" and value.type == "call_expression":
        called, parts = text_of(value.child_by_field_name("function")), arguments_of(value)
        if called in ("std::max", "std::min") and len(parts) == 2:
            others = [part for part in parts if text_of(part) != name]
            if len(others) == 1 and name not in identifiers(others[0]):
                return called.removeprefix("std::")
    return None


def _greatest(node: Node) -> tuple[str, str]:
    """Return the name and kind of the maximum that ``if (value > name) name = value;`` takes.

    Both are empty for any other statement.
    """
    clause, then = (node.child_by_field_name(name) for name in ("condition", "consequence"))
    if node.type != "if_statement" or clause is None or then is None or len(node.children) > 3:
        return "", ""
    inner = children(then) if then.type == "compound_statement" else [then]
    store = children(inner[0])[0] if len(inner) == 1 and children(inner[0]) else then
    compared = (children(clause) or [clause])[-1]
    parts = [text_of(compared.child_by_field_name(name)) for name in ("left", "operator", "right")]
    name, value = (text_of(store.child_by_field_name(name)) for name in ("left", "right"))
    if (
        compared.type != "binary_expression"
        or text_of(store.child_by_field_name("operator")) != "="
    ):
        return "", ""
    if sorted((parts[0], parts[2])) != sorted((name, value)) or name == value:
        return "", ""
    right = store.child_by_field_name("right")
    if right is None or name in identifiers(right) or parts[1][:1] not in ("<", ">"):
        return "", ""
    return name, "max" if (parts[1][0] == ">") == (parts[0] == value) else "min"


def is_guarded(node: Node, value: Node) -> bool:
    """Return True if a part of a C++ expression is evaluated only under a condition within it."""
    while node != value and (above := node.parent) is not None:
        if above.type == "conditional_expression":
            return True
        if text_of(above.child_by_field_name("operator")) in ("&&", "||"):
            return True
        node = above
    return False


def expression_type(function: CppFunction, node: Node, known: dict[str, str]) -> str | None:
    """Return the type of a C++ expression: float, double, or int for whole numbers.

    Args:
        function: Function around the expression.
        node: The expression.
        known: Types of numbers that the loops around the expression declare.
    """
    if node.type == "number_literal":
        text = text_of(node)
        if not any(sign in text for sign in ".eE") or text.lower().startswith("0x"):
            return "int"
        if text[-1] in "lL":
            return None
        return "float" if text[-1] in "fF" else "double"
    if node.type == "identifier":
        kind = known.get(text_of(node), function.types.get(text_of(node)))
        return _plain_kind(kind) if kind else None
    if node.type == "subscript_expression":
        return _plain_kind(function.array_of(node).element) if node in function.elements else None
    if node.type == "call_expression":
        called = text_of(node.child_by_field_name("function"))
        if called in ("static_cast<float>", "static_cast<double>"):
            return called[12:-1]
        if called in ("float", "double"):
            return called
        kinds = [expression_type(function, part, known) for part in arguments_of(node)]
        if called in ("std::max", "std::min"):
            return kinds[0] if len(set(kinds)) == 1 else None
        # With a type in angle brackets, or in the name as in sqrtf, the arguments do not decide.
        if not called.startswith("std::") or "<" in called:
            return None
        if called.endswith("f") and called != "std::erf":
            return None
        if called == "std::abs" and "int" in kinds:
            return None
        # A whole number counts as a double there: std::pow(float, int) is one.
        return _wider(["double" if kind == "int" else kind for kind in kinds]) if kinds else None
    if node.type == "cast_expression":
        kind = text_of(node.child_by_field_name("type"))
        return kind if kind in ("float", "double") else None
    if node.type in ("parenthesized_expression", "unary_expression", "binary_expression"):
        return _wider([expression_type(function, each, known) for each in children(node)])
    return None


def is_total(function: CppFunction, node: Node, known: dict[str, str]) -> bool:
    """Return True if a C++ expression is defined for all values of its names.

    Whole numbers may overflow or be divided by zero, and a number with a point may be too large for
    the whole number that it becomes; an element may not be there. So an expression with any of
    these may be evaluated only where the text evaluates it.

    Args:
        function: Function around the expression.
        node: The expression.
        known: Types of numbers that the loops around the expression declare.
    """
    for each in walk(node):
        if each.type == "subscript_expression":
            return False
        if each.type in ("binary_expression", "unary_expression") and identifiers(each):
            if expression_type(function, each, known) not in ("float", "double"):
                return False
        if each.type in ("call_expression", "cast_expression"):
            if expression_type(function, each, known) not in ("float", "double"):
                return False
    return True


def _plain_kind(kind: str) -> str | None:
    return kind if kind in ("float", "double") else "int" if kind in WHOLE else None


def _wider(kinds: list[str | None]) -> str | None:
    if None in kinds:
        return None
    return next((kind for kind in ("double", "float") if kind in kinds), "int")
