"""`lower_precision`: computes in floats what loops compute in doubles.

A vector register holds twice as many floats, and conversions are avoided. All loops of a function
change together: the doubles that their bodies declare, constants, and casts. Parameters and tensors
keep
their types.
"""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced, rewritten
from kernelgym_train.mcgs.cpp.forms import (
    CppAssign,
    CppFunction,
    CppLet,
    CppOther,
    CppStatement,
    walk_loops,
)
from kernelgym_train.mcgs.cpp.loops import read_functions, unread_loops
from kernelgym_train.mcgs.cpp.proofs import expression_type
from kernelgym_train.mcgs.cpp.syntax import text_of, walk
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_LARGEST, _SMALLEST = 3.4e38, 1.2e-38  # of a float that is not infinity, and has all its digits
_LIMITS = {"DBL_MAX": "FLT_MAX", "DBL_MIN": "FLT_MIN", "M_PI": "static_cast<float>(M_PI)"}
_NEED_ONE_TYPE = ("std::max", "std::min")


@extension_move("approximate", phase=7, weight=1.0)
def lower_precision(cpp: str) -> Iterator[ChangedText]:
    """Compute in floats what loops compute in doubles.

    Yields floats for each function that computes in doubles.
    """
    if unread_loops(cpp):
        return  # all loops of a function change together
    for function in read_functions(cpp):
        edits = _edits(function)
        changed = replaced(cpp, edits)
        if edits and _compiles(changed, function):
            yield ChangedText(function.name, "float", changed)


def _statements(function: CppFunction) -> list[CppStatement]:
    return [statement for loop in walk_loops(function.loops) for statement in loop.body]


def _edits(function: CppFunction) -> list[tuple[Node, str]]:
    """Return edits that make a C++ function compute in floats; none if a constant does not fit."""
    statements = _statements(function)
    if any(isinstance(each, CppOther) for each in statements):
        return []
    declared = [each for each in statements if isinstance(each, CppLet)]
    lowered = {each.name for each in declared if each.type == "double"}
    wide = {name for name, kind in function.types.items() if kind == "double"} - lowered
    edits: list[tuple[Node, str]] = []

    def rule(node: Node) -> str | None:
        text = text_of(node)
        if text.startswith("static_cast<float>") and node.type == "call_expression":
            return text
        if node.type == "number_literal" and expression_type(function, node, {}) == "double":
            return f"{text}f"
        if node.type == "primitive_type" and text == "double":
            return "float"
        if node.type == "identifier" and text in wide:
            return f"static_cast<float>({text})"
        return _LIMITS.get(text) if node.type == "identifier" else None

    for statement in statements:
        if not isinstance(statement, CppLet | CppAssign) or _is_kept(function, statement, lowered):
            continue
        if any(_is_no_float(node) for node in walk(statement.value)):
            return []
        if isinstance(statement, CppLet) and statement.type == "double":
            kind = statement.node.child_by_field_name("type")
            if kind is None or text_of(kind) != "double":
                return []
            if (kind, "float") not in edits:  # several numbers may share it
                edits.append((kind, "float"))
        if (text := rewritten(statement.value, rule)) != text_of(statement.value):
            edits.append((statement.value, text))
    return edits


def _is_kept(function: CppFunction, statement: CppLet | CppAssign, lowered: set[str]) -> bool:
    """Return True if the result of a C++ statement must keep its type."""
    if isinstance(statement, CppLet):
        return statement.type not in ("float", "double")
    target = statement.target
    if target.type == "identifier" and text_of(target) in lowered:
        return False
    known = {each.name: each.type for each in _statements(function) if isinstance(each, CppLet)}
    return expression_type(function, target, known) != "float"


def _is_no_float(node: Node) -> bool:
    """Return True for a C++ constant beyond the range of floats."""
    if node.type != "number_literal":
        return False
    text = text_of(node).replace("'", "").rstrip("fFlLuU")
    try:
        size = abs(float(text))
    except ValueError:  # hexadecimal
        return any(sign in text for sign in ".pP")
    return size > _LARGEST or 0.0 < size < _SMALLEST


def _compiles(cpp: str, before: CppFunction) -> bool:
    """Return True if all calls of ``std::max`` and ``std::min`` have arguments of equal types."""
    after = next((each for each in read_functions(cpp) if each.name == before.name), None)
    if after is None or len(_statements(after)) != len(_statements(before)):
        return False
    known = {each.name: each.type for each in _statements(after) if isinstance(each, CppLet)}
    return all(
        expression_type(after, node, known) is not None
        for statement in _statements(after)
        if isinstance(statement, CppLet | CppAssign)
        for node in walk(statement.value)
        if node.type == "call_expression"
        and text_of(node.child_by_field_name("function")) in _NEED_ONE_TYPE
    )
