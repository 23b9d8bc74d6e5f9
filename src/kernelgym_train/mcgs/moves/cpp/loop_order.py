"""`loop_order`: swaps loops, so that the innermost one walks through memory in small steps."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.accumulation import Accumulation, read_accumulation
from kernelgym_train.mcgs.cpp.editing import lines_at, replaced, rewritten
from kernelgym_train.mcgs.cpp.forms import CppFunction, CppLoop, only_inner
from kernelgym_train.mcgs.cpp.loops import each_loop
from kernelgym_train.mcgs.cpp.proofs import has_independent_iterations
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move


@extension_move("exact", phase=30, weight=2.0)
def loop_order(cpp: str) -> Iterator[ChangedText]:
    """Swap loops so that the innermost one walks through memory in steps of one element.

    Yields sums with the loop over terms outside, and nests with their loops swapped.
    """
    for function, loop in each_loop(cpp):
        accumulation = None if loop.pragmas else read_accumulation(function, loop)
        if accumulation is not None and accumulation.terms.has_plain_bounds:
            choice, text = "terms outside", _terms_outside(accumulation)
        elif (inner := _swappable(function, loop)) is not None:
            choice = "swapped"
            text = f"{inner.head} {{ {loop.head} {text_of(inner.body_node)} }}"
        else:
            continue
        yield ChangedText(loop.name, choice, replaced(cpp, [(loop.node, text)]))


def _terms_outside(found: Accumulation) -> str:
    """Return the nest with the loop over terms outermost; each sum keeps its order of terms."""
    head = found.elements.head
    element = text_of(found.store.target)
    lines = [
        f"{head} {{",
        f"  {element} = {text_of(found.total.value)};",
        "}",
        f"{found.terms.head} {{",
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
    if not found.elements.is_in_block:
        lines = ["{", *lines, "}"]
    return lines_at(found.elements.column, lines)


def _swappable(function: CppFunction, loop: CppLoop) -> CppLoop | None:
    """Return the inner of two loops that may change places; None if that is not proven."""
    inner = only_inner(loop)
    if inner is None or loop.pragmas:
        return None
    if loop.variable in inner.bounds or inner.variable in loop.bounds:
        return None
    if not inner.has_plain_bounds:
        return None  # evaluated even if the other loop runs zero times
    both = (loop, inner)
    return inner if all(has_independent_iterations(function, each) for each in both) else None
