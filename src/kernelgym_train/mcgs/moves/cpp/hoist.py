"""`hoist`: computes once what a loop computes in each iteration.

Two forms. A call whose arguments do not change in a loop is made before the loop. Or, of two loops
over the same range that both make the same call, the first keeps its result in the output that the
second writes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced, rewritten, with_lines_before
from kernelgym_train.mcgs.cpp.forms import (
    CppAssign,
    CppBuffer,
    CppFunction,
    CppLet,
    CppLoop,
    CppOther,
    CppStatement,
    inner_loops,
    walk_loops,
)
from kernelgym_train.mcgs.cpp.loops import read_functions
from kernelgym_train.mcgs.cpp.proofs import accesses, carried, expression_type, is_guarded, is_total
from kernelgym_train.mcgs.cpp.syntax import identifiers, text_of, walk
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move


@extension_move("exact", phase=10, weight=1.5)
def hoist(cpp: str) -> Iterator[ChangedText]:
    """Compute before a loop what does not change in it, and once what two loops both compute.

    Yields calls that two loops share, then calls that do not change in a loop.
    """
    for function in read_functions(cpp):
        for around in walk_loops(function.loops):
            for first, second in _neighbours(around.body):
                edits = _kept(function, around, first, second)
                if edits:
                    yield ChangedText(f"{first.name} {second.name}", "keep", replaced(cpp, edits))
        for loop in walk_loops(function.loops):
            text = _before(function, cpp, loop)
            if text is not None:
                yield ChangedText(loop.name, "before the loop", text)


def _neighbours(body: tuple[CppStatement, ...]) -> Iterator[tuple[CppLoop, CppLoop]]:
    """Yield pairs of neighbouring innermost loops over the same range, in order."""
    loops = [each for each in body if isinstance(each, CppLoop)]
    for at, first in enumerate(loops):
        for second in loops[at + 1 :]:
            one, other = (
                (each.variable, each.type, each.lower, each.upper, each.step)
                for each in (first, second)
            )
            if one == other and len(second.body) == 1:
                yield first, second


def _kept(
    function: CppFunction, around: CppLoop, first: CppLoop, second: CppLoop
) -> list[tuple[Node, str]] | None:
    """Return edits by which loop `first` keeps a call's result in `second`'s output; or None."""
    body, (store,) = around.body, second.body
    if not isinstance(store, CppAssign) or store.operator != "=":
        return None
    if store.target not in function.elements or len(first.body) != 1:
        return None
    (use,) = first.body
    if not isinstance(use, CppAssign) or use.target.type != "identifier":
        return None
    output = function.array_of(store.target)
    if not output.output:
        return None  # what the call reads may be the same memory
    if [each.writes for each in accesses(body) if each.array == output.name] != [True]:
        return None
    if function.stride(store.target, second.variable) in (None, 0):
        return None  # another iteration would write over the element that is kept
    shared = _shared_call(use.value, store.value)
    if shared is None or expression_type(function, shared, around.lets) != output.element:
        return None
    if is_guarded(shared, use.value) and not is_total(function, shared, around.lets):
        return None  # the first loop would compute it in both cases
    between = body[body.index(first) : body.index(second)]
    changed = carried(between) | {text_of(use.target)}
    written = {each.array for each in accesses(between) if each.writes}
    read = {function.elements[each].array for each in walk(shared) if each in function.elements}
    late = {each.name for each in body[body.index(first) :] if isinstance(each, CppLet | CppBuffer)}
    late |= {name for each in body if isinstance(each, CppOther) for name in each.declared}
    if changed & identifiers(shared) or written & read or late & identifiers(store.target):
        return None
    element, wanted = text_of(store.target), text_of(shared)

    def rule(node: Node) -> str | None:
        return element if node.type == "call_expression" and text_of(node) == wanted else None

    pad = " " * use.node.start_point.column
    text = f"{element} = {wanted};\n{pad}{rewritten(use.node, rule)}"
    if first.node.child_by_field_name("body") == use.node:
        text = f"{{ {text} }}"
    return [(use.node, text), (store.value, rewritten(store.value, rule))]


def _shared_call(one: Node, other: Node) -> Node | None:
    """Return the largest call expression that occurs in both expressions."""
    there = {text_of(node) for node in walk(other) if node.type == "call_expression"}
    for node in walk(one):
        if node.type == "call_expression" and text_of(node) in there:
            return node
    return None


def _before(function: CppFunction, cpp: str, loop: CppLoop) -> str | None:
    """Return the C++ text with a loop's invariant calls made once before the loop."""
    # Where it is not in a block, a declaration would become the outer loop's whole body.
    if not loop.is_in_block or inner_loops(loop) or loop.pragmas:
        return None
    inside = {loop.variable, *loop.lets, *carried(loop.body)}
    known = function.declared_in_loops()
    found: dict[str, str] = {}
    for node in (each for value in loop.values() for each in walk(value)):
        read = identifiers(node)
        if node.type != "call_expression" or read & inside:
            continue
        if not is_total(function, node, known):
            continue  # the loop may run zero times, and does not compute it then
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

    body = loop.body_node
    lines = [(loop.node, f"const {kind} {names[text]} = {text};") for text, kind in found.items()]
    return with_lines_before(replaced(cpp, [(body, rewritten(body, rule))]), lines)
