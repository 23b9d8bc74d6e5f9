"""`loop_order`: loops change places, so that the innermost one walks through memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.accumulation import Accumulation, read_accumulation
from kernelgym_train.mcgs.cpp.editing import replaced, rewritten
from kernelgym_train.mcgs.cpp.loops import Function, Loop, read_functions, walk_loops
from kernelgym_train.mcgs.cpp.proofs import has_independent_iterations
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.moves.definition import Move, Realisation
from kernelgym_train.mcgs.variant import Variant

__all__ = ["LOOP_ORDER"]


def _realise(variant: Variant) -> Iterator[Realisation]:
    """Yield accumulations turned inside out, and nests with loops swapped."""
    file = variant.file
    for function in read_functions(file.cpp):
        for loop in walk_loops(function.loops):
            found: list[tuple[str, str]] = []
            accumulation = None if loop.pragmas else read_accumulation(function, loop)
            if accumulation is not None:
                found.append(("terms outside", _terms_outside(accumulation)))
            elif (inner := _swappable(function, loop)) is not None:
                found.append(("swapped", _swapped(loop, inner)))
            for choice, text in found:
                cpp = replaced(file.cpp, [(loop.node, text)])
                changed = dataclasses.replace(variant, source=file.with_cpp(cpp).source)
                yield Realisation(loop.name, choice, changed)


def _terms_outside(found: Accumulation) -> str:
    """Return the terms' loop around the elements': sums keep their order."""
    pad = " " * found.elements.node.start_point.column
    head = _head(found.elements)
    element = text_of(found.store.target)
    lines = [
        f"{head} {{",
        f"  {element} = {text_of(found.total.value)};",
        "}",
        f"{_head(found.terms)} {{",
        f"  {head} {{",
        f"    {element} {found.add.operator} {text_of(found.add.value)};",
        "  }",
        "}",
    ]
    name = found.total.name
    if text_of(found.store.value) != name:

        def rule(node: Node) -> str | None:
            return element if node.type == "identifier" and text_of(node) == name else None

        lines += [f"{head} {{", f"  {element} = {rewritten(found.store.value, rule)};", "}"]
    parent = found.elements.node.parent
    if parent is None or parent.type != "compound_statement":
        lines = ["{", *lines, "}"]
    return f"\n{pad}".join(lines)


def _swappable(function: Function, loop: Loop) -> Loop | None:
    """Return the inner loop if two loops may change places."""
    if len(loop.body) != 1 or loop.pragmas:
        return None
    (inner,) = loop.body
    if not isinstance(inner, Loop) or inner.pragmas:
        return None
    bounds = inner.lower.names | inner.upper.names
    if loop.variable in bounds or inner.variable in loop.lower.names | loop.upper.names:
        return None
    both = has_independent_iterations(function, loop) and has_independent_iterations(
        function, inner
    )
    return inner if both else None


def _swapped(loop: Loop, inner: Loop) -> str:
    body = inner.node.child_by_field_name("body")
    return f"{_head(inner)} {{ {_head(loop)} {text_of(body)} }}"


def _head(loop: Loop) -> str:
    """Return a loop's text up to its closing parenthesis.

    A comment after it would hide the brace that follows.
    """
    closing = next(child for child in reversed(loop.node.children) if child.type == ")")
    data = text_of(loop.node).encode()
    return data[: closing.end_byte - loop.node.start_byte].decode()


LOOP_ORDER = Move(
    "loop_order",
    ("cpp",),
    "exact",
    30,
    2.0,
    "Swap loops so that the innermost one walks through memory in steps of one element.",
    _realise,
)
