"""`CudaRows`: a kernel in which each thread computes one row, by loops over its columns. Pure.

Recognised is one form: the index of `kernelgym_train.mcgs.cuda.elements`, and guarded statements
that are declarations, assignments to numbers, stores, and loops ``for (int c = 0; c < n; ++c)``. A
loop may add to numbers, take their maximum or minimum, store elements, and declare numbers of its
own. It does not read a number that it changes, and holds no other loop. A number is added to by one
loop alone, and nothing else changes it before. An array that is written has the same subscript at
each access, but for the name of the column, so that a lane reads only what it wrote itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import rewritten
from kernelgym_train.mcgs.cpp.syntax import (
    children,
    declared_name,
    identifiers,
    index_node,
    plain_text,
    text_of,
    walk,
)
from kernelgym_train.mcgs.cuda.elements import CudaElements, elements_of, written
from kernelgym_train.mcgs.cuda.products import ZERO, counted_loop
from kernelgym_train.mcgs.cuda.text import CudaKernel, CudaText, statements_of

_EXTREMES = {"fmaxf": "fmaxf", "fminf": "fminf", "max": "max", "min": "min"}
_ALLOWED = ("declaration", "expression_statement", "for_statement")


@dataclass(frozen=True, eq=False)
class CudaRowLoop:
    """One loop of a kernel over the columns of its row."""

    node: Node
    variable: str
    bound: str
    combined: tuple[tuple[str, str], ...]
    """(number, how the lanes' values of it are combined: ``+`` or a function's name)."""


@dataclass(frozen=True, eq=False)
class CudaRows:
    """A kernel that computes one row a thread."""

    elements: CudaElements
    loops: tuple[CudaRowLoop, ...]


def rows_of(text: CudaText, kernel: CudaKernel) -> CudaRows | None:
    """Return a kernel as one that computes one row a thread; None for another form."""
    found = elements_of(text, kernel)
    if found is None or not found.is_alone:
        return None
    if any(each.type not in _ALLOWED for each in found.body):
        return None
    loops = []
    initial = _initial(found.body)
    for each in found.body:
        if each.type == "for_statement":
            loop = _loop(each, initial)
            if loop is None:
                return None
            loops.append(loop)
    if not loops or not _adds_once(found.body, loops) or not _own_elements(found, loops):
        return None
    return CudaRows(found, tuple(loops))


def _adds_once(body: tuple[Node, ...], loops: list[CudaRowLoop]) -> bool:
    """Return True if each sum of a CUDA kernel begins at 0 where its loop begins."""
    sums = [name for loop in loops for name, how in loop.combined if how == "+"]
    if len(set(sums)) < len(sums):
        return False
    for loop in loops:
        names = {name for name, how in loop.combined if how == "+"}
        before = [each for each in body if each.end_byte <= loop.node.start_byte]
        others = [each for each in before if each.type == "expression_statement"]
        if any(_changes(each, name) for each in others for name in names):
            return False
    return True


def _own_elements(found: CudaElements, loops: list[CudaRowLoop]) -> bool:
    """Return True if no lane reads an element that another lane writes.

    Arrays that are written have one subscript each, but for the column's name. In a loop, it tells
    columns apart; outside of loops, such arrays stand in stores alone, which one lane makes.
    """
    arrays = {name for each in found.body for name in written(each)}
    places: dict[str, set[str]] = {}
    named = accesses = 0
    for statement in found.body:
        loop = next((each for each in loops if each.node.id == statement.id), None)
        for node in walk(statement):
            named += node.type == "identifier" and text_of(node) in arrays
            array = text_of(node.child_by_field_name("argument"))
            if node.type != "subscript_expression" or array not in arrays:
                continue
            accesses += 1
            index = index_node(node)
            if index is None or not (
                is_store(statement) if loop is None else _tells_apart(index, loop.variable)
            ):
                return False
            names = {} if loop is None else {loop.variable: "<column>"}
            places.setdefault(array, set()).add(_renamed(node, names))
    return named == accesses and all(len(each) == 1 for each in places.values())


def is_store(statement: Node) -> bool:
    """Return True if a statement of CUDA code assigns to an element of an array."""
    inner = children(statement)
    target = inner[0].child_by_field_name("left") if inner else None
    plain = statement.type == "expression_statement"
    return plain and target is not None and target.type == "subscript_expression"


def _tells_apart(index: Node, column: str) -> bool:
    """Return True if the form of a CUDA subscript proves that it differs for each column."""
    if index.type == "identifier":
        return text_of(index) == column
    if index.type == "parenthesized_expression":
        inner = children(index)
        return len(inner) == 1 and _tells_apart(inner[0], column)
    left, right = (index.child_by_field_name(name) for name in ("left", "right"))
    sign = text_of(index.child_by_field_name("operator"))
    if index.type != "binary_expression" or left is None or right is None or sign not in "+*":
        return False
    return any(
        _tells_apart(one, column) and column not in identifiers(other)
        for one, other in ((left, right), (right, left))
    )


def _renamed(node: Node, names: dict[str, str]) -> str:
    text = rewritten(
        node, lambda each: names.get(text_of(each)) if each.type == "identifier" else None
    )
    return "".join(text.split())


def _initial(body: tuple[Node, ...]) -> dict[str, str]:
    """Return the values with which numbers in CUDA code are declared, by name."""
    return {
        text_of(declared_name(part)): plain_text(part.child_by_field_name("value"))
        for statement in body
        if statement.type == "declaration"
        for part in statement.children_by_field_name("declarator")
    }


def _loop(node: Node, initial: dict[str, str]) -> CudaRowLoop | None:
    counted = counted_loop(node)
    if counted is None:
        return None
    variable, bound, body = counted
    own: set[str] = set()
    combined: dict[str, str] = {}
    for statement in statements_of(body):
        if statement.type == "declaration":
            parts = statement.children_by_field_name("declarator")
            own |= {text_of(declared_name(part)) for part in parts}
            continue
        inner = children(statement)
        if statement.type != "expression_statement" or len(inner) != 1:
            return None
        (assigned,) = inner
        target = assigned.child_by_field_name("left")
        if assigned.type != "assignment_expression" or target is None:
            return None
        if target.type == "subscript_expression" or text_of(target) in own:
            continue
        step = _step(assigned, text_of(target))
        if step is None or combined.setdefault(text_of(target), step) != step:
            return None
    for name, how in combined.items():
        if name not in initial or (how == "+" and not ZERO.fullmatch(initial[name])):
            return None
        if _reads(body, name) != sum(_changes(body, name)):
            return None
    if identifiers(bound) & (own | set(combined) | {variable}):
        return None
    return CudaRowLoop(node, variable, text_of(bound), tuple(combined.items()))


def _step(assigned: Node, name: str) -> str | None:
    """Return how an assignment combines a number with another value; None if it does not."""
    operator = text_of(assigned.child_by_field_name("operator"))
    value = assigned.child_by_field_name("right")
    if operator == "+=":
        return "+"
    if operator != "=" or value is None:
        return None
    if value.type == "binary_expression":
        left, sign = (value.child_by_field_name(each) for each in ("left", "operator"))
        return "+" if text_of(sign) == "+" and text_of(left) == name else None
    called = text_of(value.child_by_field_name("function"))
    given = value.child_by_field_name("arguments")
    if value.type != "call_expression" or called not in _EXTREMES or given is None:
        return None
    return called if name in [text_of(each) for each in children(given)] else None


def _reads(body: Node, name: str) -> int:
    return sum(each.type == "identifier" and text_of(each) == name for each in walk(body))


def _changes(body: Node, name: str) -> list[int]:
    """Return, for each assignment to a number, how often it names it: 1 for ``+=``, otherwise 2."""
    found = []
    for each in walk(body):
        target = each.child_by_field_name("left")
        if each.type == "assignment_expression" and text_of(target) == name:
            plain = text_of(each.child_by_field_name("operator")) == "+="
            found.append(1 if plain else 2)
    return found
