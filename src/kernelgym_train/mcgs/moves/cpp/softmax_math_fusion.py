"""`softmax_math_fusion`: replaces divisions and ``exp`` by cheaper computations.

Divisions by a number that a loop does not change become products with its reciprocal. ``exp`` of
floats becomes a polynomial that the compiler can vectorise: its relative error is below 2e-7
between -87 and 88, and it returns the value at the nearer end outside of them, and for NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced, rewritten, with_lines_above, with_text_above
from kernelgym_train.mcgs.cpp.forms import CppFunction, CppLoop, inner_loops, walk_loops
from kernelgym_train.mcgs.cpp.loops import each_loop, read_functions
from kernelgym_train.mcgs.cpp.proofs import carried, expression_type, is_total
from kernelgym_train.mcgs.cpp.syntax import (
    arguments_of,
    identifiers,
    root_of,
    sides_of,
    text_of,
    walk,
)
from kernelgym_train.mcgs.cpp.vectors import fresh
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_HELPER = "exp_by_polynomial"
_TEXT = files(__package__).joinpath(f"{_HELPER}.h").read_text("utf-8")


@extension_move("approximate", phase=52, weight=1.0)
def softmax_math_fusion(cpp: str) -> Iterator[ChangedText]:
    """Multiply by a reciprocal in place of dividing, and compute exp by a polynomial.

    Yields reciprocals for each loop, then the polynomial for all calls of ``exp``.
    """
    for function in read_functions(cpp):
        known = function.declared_in_loops()
        for loop in walk_loops(function.loops):
            text = _reciprocals(function, cpp, loop, known)
            if text is not None:
                yield ChangedText(loop.name, "reciprocals", text)
    if _HELPER in cpp:
        return
    calls = [
        node.child_by_field_name("function")
        for function, loop in each_loop(cpp)
        for value in loop.values()
        for node in walk(value)
        if _is_exp_of_float(function, node, function.declared_in_loops())
    ]
    found = [call for call in calls if call is not None]
    if found:
        text = replaced(cpp, [(call, _HELPER) for call in found])
        yield ChangedText("exp", "polynomial", with_text_above(text, found[0], _TEXT))


def _is_exp_of_float(function: CppFunction, node: Node, known: dict[str, str]) -> bool:
    """Return True for a C++ call of ``exp`` that computes in floats."""
    if node.type != "call_expression":
        return False
    called = text_of(node.child_by_field_name("function"))
    parts = arguments_of(node)
    if len(parts) != 1 or expression_type(function, parts[0], known) != "float":
        return False
    return called in ("std::exp", "std::expf", "expf")


def _reciprocals(
    function: CppFunction, cpp: str, loop: CppLoop, known: dict[str, str]
) -> str | None:
    """Return the C++ text with products in place of divisions by unchanged numbers, or None."""
    if inner_loops(loop) or not loop.is_in_block:
        return None
    inside = {loop.variable, *loop.lets, *carried(loop.body)}
    taken = identifiers(root_of(loop.node))
    names: dict[tuple[str, str], str] = {}

    def product(node: Node) -> str | None:
        if node.type != "binary_expression":
            return None
        sides, kind = sides_of(node), expression_type(function, node, known)
        if sides is None or sides[1] != "/" or kind not in ("float", "double"):
            return None
        left, _, right = sides
        if not identifiers(right) or identifiers(right) & inside:
            return None
        if not is_total(function, right, known):
            return None  # the loop may run zero times, and does not compute it then
        if expression_type(function, right, known) not in ("float", "double"):
            return None
        divisor = (kind, text_of(right))
        if divisor not in names:
            names[divisor] = fresh("reciprocal", taken)
        return f"({rewritten(left, product)}) * {names[divisor]}"

    body = loop.body_node
    inner = rewritten(body, product)
    if not names:
        return None
    one = {"float": "1.0f", "double": "1.0"}
    lines = [
        f"const {kind} {name} = {one[kind]} / ({divisor});"
        for (kind, divisor), name in names.items()
    ]
    return with_lines_above(replaced(cpp, [(body, inner)]), [(loop.node, lines)])
