"""`hoist`: what a loop computes again and again is computed once.

Two forms. A call of numbers that do not change in a loop is made before it. An expression that two
loops over the same range both compute, and from which the second makes the output, is left in the
output by the first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced, rewritten, with_lines_before
from kernelgym_train.mcgs.cpp.loops import (
    Assign,
    Buffer,
    Function,
    Let,
    Loop,
    Statement,
    read_functions,
    walk_loops,
)
from kernelgym_train.mcgs.cpp.proofs import accesses, carried, expression_type, index_of
from kernelgym_train.mcgs.cpp.syntax import identifiers, text_of, walk
from kernelgym_train.mcgs.moves.definition import Move, Realisation
from kernelgym_train.mcgs.variant import Variant

__all__ = ["HOIST"]


def _realise(variant: Variant) -> Iterator[Realisation]:
    """Yield expressions shared by two loops, then invariant calls."""
    file = variant.file
    for function in read_functions(file.cpp):
        for body, known in _bodies(function):
            for first, second in _neighbours(body):
                text = _kept(function, file.cpp, body, first, second, known)
                if text is not None:
                    changed = dataclasses.replace(variant, source=file.with_cpp(text).source)
                    yield Realisation(f"{first.name} {second.name}", "keep", changed)
        for loop in walk_loops(function.loops):
            text = _before(function, file.cpp, loop)
            if text is not None:
                changed = dataclasses.replace(variant, source=file.with_cpp(text).source)
                yield Realisation(loop.name, "before the loop", changed)


def _bodies(function: Function) -> Iterator[tuple[tuple[Statement, ...], dict[str, str]]]:
    """Yield bodies of loops, with the types that they declare."""
    for loop in walk_loops(function.loops):
        lets = {each.name: each.type for each in loop.body if isinstance(each, Let)}
        yield loop.body, lets


def _neighbours(body: tuple[Statement, ...]) -> Iterator[tuple[Loop, Loop]]:
    """Yield pairs of innermost loops over the same range, in order."""
    loops = [each for each in body if isinstance(each, Loop)]
    for at, first in enumerate(loops):
        for second in loops[at + 1 :]:
            same = (first.lower, first.upper, first.step) == (
                second.lower,
                second.upper,
                second.step,
            )
            plain = first.variable == second.variable and first.type == second.type
            if same and plain and len(second.body) == 1:
                yield first, second


def _kept(
    function: Function,
    cpp: str,
    body: tuple[Statement, ...],
    first: Loop,
    second: Loop,
    known: dict[str, str],
) -> str | None:
    """Return the text in which `first` leaves a call in `second`'s output."""
    (store,) = second.body
    if not isinstance(store, Assign) or store.operator != "=":
        return None
    if store.target.type != "subscript_expression" or len(first.body) != 1:
        return None
    (use,) = first.body
    if not isinstance(use, Assign) or use.target.type != "identifier":
        return None
    output = function.arrays[text_of(store.target.child_by_field_name("argument"))]
    if any(each.array == output.name for each in accesses(body) if not each.writes):
        return None
    if sum(each.array == output.name for each in accesses(body)) != 1:
        return None
    stride = index_of(store.target).coefficient(second.variable)
    if stride is None or stride.constant in (None, 0):
        return None  # another iteration would write over what is kept
    shared = _shared_call(use.value, store.value)
    if shared is None or expression_type(function, shared, known) != output.element:
        return None
    between = body[body.index(first) : body.index(second)]
    changed = carried(between) | {text_of(use.target)}
    changed |= {each.array for each in accesses(between) if each.writes}
    late = {each.name for each in body[body.index(first) :] if isinstance(each, Let | Buffer)}
    if changed & identifiers(shared) or late & identifiers(store.target):
        return None
    element, wanted = text_of(store.target), text_of(shared)

    def rule(node: Node) -> str | None:
        return element if node.type == "call_expression" and text_of(node) == wanted else None

    pad = " " * use.node.start_point.column
    text = f"{element} = {wanted};\n{pad}{rewritten(use.node, rule)}"
    if first.node.child_by_field_name("body") == use.node:
        text = f"{{ {text} }}"
    return replaced(cpp, [(use.node, text), (store.value, rewritten(store.value, rule))])


def _shared_call(one: Node, other: Node) -> Node | None:
    """Return the largest call that stands in both expressions."""
    there = {text_of(node) for node in walk(other) if node.type == "call_expression"}
    for node in walk(one):
        if node.type == "call_expression" and text_of(node) in there:
            return node
    return None


def _before(function: Function, cpp: str, loop: Loop) -> str | None:
    """Return the text with invariant calls made before a loop."""
    inside = {loop.variable} | {each.name for each in loop.body if isinstance(each, Let)}
    parent = loop.node.parent
    if parent is None or parent.type != "compound_statement":
        return None  # a declaration there would become the outer loop's whole body
    if any(isinstance(each, Loop) for each in loop.body) or loop.pragmas:
        return None
    inside |= carried(loop.body)
    known: dict[str, str] = {}
    for outer in walk_loops(function.loops):
        for each in outer.body:
            if isinstance(each, Let):
                known[each.name] = each.type if known.get(each.name, each.type) == each.type else ""
    found: dict[str, str] = {}
    for statement in loop.body:
        if isinstance(statement, Loop | Buffer):
            continue
        for node in walk(statement.value):
            read = identifiers(node)
            if node.type != "call_expression" or read & inside:
                continue
            if any(each.type == "subscript_expression" for each in walk(node)):
                continue  # the loop may run zero times, and the element may not be there
            kind = expression_type(function, node, known)
            covered = any(text_of(node) in text for text in found)
            if kind in ("float", "double") and read and not covered:
                found[text_of(node)] = kind
    if not found:
        return None
    names = {text: f"fixed_{at}" for at, text in enumerate(found)}
    if any(name in cpp for name in names.values()):
        names = {text: f"fixed_{loop.node.start_byte}_{at}" for at, text in enumerate(found)}

    def rule(node: Node) -> str | None:
        return names.get(text_of(node)) if node.type == "call_expression" else None

    body = loop.node.child_by_field_name("body")
    assert body is not None
    data = cpp.encode()
    inner = rewritten(body, rule)
    data = data[: body.start_byte] + inner.encode() + data[body.end_byte :]
    lines = [(loop.node, f"const {kind} {names[text]} = {text};") for text, kind in found.items()]
    return with_lines_before(data.decode(), lines)


HOIST = Move(
    "hoist",
    ("cpp",),
    "exact",
    10,
    1.5,
    "Compute before a loop what does not change in it, and once what two loops both compute.",
    _realise,
)
