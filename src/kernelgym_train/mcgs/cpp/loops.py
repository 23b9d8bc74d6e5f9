"""Recognises counted loops in C++ text, and the statements in them.

Contract: `read_functions` returns only loops that it understands completely. A loop is recognised
if it
counts one whole number up by a constant to a bound that it does not change, and its body holds
nothing but declarations of numbers and vectors of numbers, assignments to numbers and array
elements, calls of known functions without side effects, choices between such values that read no
element, and such loops. Any other statement in a body (a branch, a jump, another call, an address,
a name whose type is not known) makes the loop, and each loop around it, unrecognised; loops beside
it and in it are read all the same. Bounds and subscripts are computed from whole numbers alone.
`unread_loops` says why a loop is not recognised.

Arrays are pointers that are bound once to ``data_ptr`` of a tensor. An array is an output if the
function allocates its tensor and uses it for nothing else before it returns it. All other arrays
are only read, so that no written array shares memory with another. A `std::vector` that a body
declares is an
output of its own for each iteration.

Needs tree-sitter. Values in memory and pointer arithmetic are not followed.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.expressions import (
    BUFFER,
    NARROW_LIMIT,
    is_element,
    is_exact,
    is_pure,
)
from kernelgym_train.mcgs.cpp.forms import (
    CppAssign,
    CppBuffer,
    CppFunction,
    CppLet,
    CppLoop,
    CppStatement,
    UnreadLoop,
    inner_loops,
    walk_loops,
)
from kernelgym_train.mcgs.cpp.polynomial import Polynomial
from kernelgym_train.mcgs.cpp.scope import (
    FLOATS,
    NARROW,
    WHOLE,
    CppArray,
    CppScope,
    constants,
    declared_names,
)
from kernelgym_train.mcgs.cpp.syntax import (
    children,
    identifiers,
    parsed,
    polynomial_of,
    text_of,
    walk,
)

_VECTOR = re.compile(rf"std::vector<({'|'.join(FLOATS)})>")
_LIMIT = r"std::numeric_limits<\w+>::\w+\(\)"
_LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
_OPERATORS = frozenset(("+", "-", "*", "/", "=", "+=", "-=", "*="))


def read_functions(cpp: str) -> tuple[CppFunction, ...]:
    """Return the functions of a C++ text that hold a recognised loop."""
    return _read(cpp)[0]


def unread_loops(cpp: str) -> tuple[UnreadLoop, ...]:
    """Return why loops of a C++ text are not recognised, in the order of their lines.

    A loop that is not recognised for a loop inside it is left out: the inner one is named.
    """
    return _read(cpp)[1]


@functools.lru_cache(maxsize=256)
def _read(cpp: str) -> tuple[tuple[CppFunction, ...], tuple[UnreadLoop, ...]]:
    root = parsed(cpp)
    macros = {
        text_of(node.child_by_field_name("name")): text_of(node.child_by_field_name("value"))
        for node in walk(root)
        if node.type in ("preproc_def", "preproc_function_def")
    }
    numbers = {name for name, value in macros.items() if value.strip().isdecimal()}
    defined = [node for node in walk(root) if node.type == "function_definition"]
    declared = declared_names(root)
    own = frozenset(declared)
    # The name of a constant that is declared again may mean something else in a function.
    fixed = {name: kind for name, kind in constants(root).items() if declared[name] == 1}
    for name in numbers - own:
        fixed[name] = "int" if int(macros[name]) < NARROW_LIMIT else "int64_t"
    found: list[CppFunction] = []
    unread: dict[tuple[int, int], str] = {}
    for node in defined:
        # A name that is a macro may mean anything.
        if meant := sorted(identifiers(node) & (set(macros) - numbers)):
            refused = [each for each in walk(node) if each.type in _LOOPS]
            unread |= {each.start_point: f"macro `{meant[0]}` in the function" for each in refused}
            continue
        function = _function(node, own, fixed, unread)
        if function is not None and function.loops:
            found.append(function)
    told = (UnreadLoop(place[0] + 1, why) for place, why in sorted(unread.items()))
    return tuple(found), tuple(dict.fromkeys(told))


def each_loop(cpp: str) -> Iterator[tuple[CppFunction, CppLoop]]:
    """Yield every recognised loop of a text with its function, outer loops first."""
    for function in read_functions(cpp):
        for loop in walk_loops(function.loops):
            yield function, loop


def innermost_loops(cpp: str) -> list[CppLoop]:
    """Return the recognised loops of a text that hold no other loop."""
    return [loop for _, loop in each_loop(cpp) if not inner_loops(loop)]


def _name_of(function: Node) -> str:
    declarator = function.child_by_field_name("declarator")
    return text_of(None if declarator is None else declarator.child_by_field_name("declarator"))


def _function(
    node: Node,
    own: frozenset[str],
    fixed: Mapping[str, str],
    unread: dict[tuple[int, int], str],
) -> CppFunction | None:
    declarator, body = node.child_by_field_name("declarator"), node.child_by_field_name("body")
    if declarator is None or body is None or any(each.is_error for each in walk(node)):
        return None
    if declarator.type != "function_declarator":
        return None
    name = _name_of(node)
    scope = CppScope(declarator, body, own, fixed)
    loops = tuple(_outermost(body, scope, name, {}, {}))
    unread |= scope.unread
    return CppFunction(name, {**scope.arrays, **scope.buffers}, {**fixed, **scope.types}, loops)


def _outermost(
    node: Node, scope: CppScope, path: str, known: dict[str, str], counts: dict[str, int]
) -> Iterator[CppLoop]:
    """Yield the recognised loops below a statement that lie in no other recognised loop.

    Args:
        node: The statement.
        scope: Declarations of the function outside of its loops.
        path: Name of the function.
        known: Types of numbers that the statements around declare.
        counts: Number of loops so far by variable.
    """
    pragmas: list[str] = []
    known = dict(known)
    for child in children(node):
        if child.type == "preproc_call":
            pragmas.append(text_of(child).strip())
            continue
        loop = None
        if child.type == "for_statement":
            loop = _loop(child, scope, path, tuple(pragmas), known, counts)
        if loop is not None:
            yield loop
        elif child.type in _LOOPS:
            if child.type != "for_statement":
                scope.refuse(child, f"`{text_of(child.children[0])}` in this form")
            if not any("collapse" in pragma or "simd" in pragma for pragma in pragmas):
                yield from _inside(child, scope, path, known, counts)
        elif any(each.type == "for_statement" for each in walk(child)):
            yield from _inside(child, scope, path, known, counts)
        elif node.type == "compound_statement" and node != scope.body:
            known |= _numbers(child)
        pragmas = []


def _inside(
    node: Node, scope: CppScope, path: str, known: dict[str, str], counts: dict[str, int]
) -> Iterator[CppLoop]:
    """Yield the recognised loops in a statement that is not understood as a whole.

    None if it declares a name again: which one a loop means is not followed.
    """
    taken = {*known, *scope.types, *scope.arrays, *scope.constants}
    if set(declared_names(node)) & taken:
        return
    known = dict(known)
    for child in children(node):
        if child.type == "declaration" and node.type == "for_statement":
            known |= _numbers(child)
        elif child.type == "abstract_function_declarator":  # of a lambda
            for each in walk(child):
                known |= _numbers(each) if each.type == "parameter_declaration" else {}
    yield from _outermost(node, scope, path, known, counts)


def _numbers(declaration: Node) -> dict[str, str]:
    """Return the types by name of the numbers that a statement declares."""
    kind = text_of(declaration.child_by_field_name("type"))
    if kind not in (*WHOLE, *FLOATS) or _is_stored(declaration):
        return {}
    found = {}
    for part in declaration.children_by_field_name("declarator"):
        target = part.child_by_field_name("declarator") if part.type == "init_declarator" else part
        if target is not None and target.type == "identifier":
            found[text_of(target)] = kind
    return found


def _loop(
    node: Node,
    scope: CppScope,
    path: str,
    pragmas: tuple[str, ...],
    outer: dict[str, str],
    counts: dict[str, int],
) -> CppLoop | None:
    first, condition, update, body = (
        node.child_by_field_name(name) for name in ("initializer", "condition", "update", "body")
    )
    if first is None or condition is None or update is None or body is None:
        scope.refuse(node, "`for` without a start, a condition or an update")
        return None
    if first.type != "declaration" or condition.type != "binary_expression":
        scope.refuse(node, "`for` that declares no counter or compares nothing")
        return None
    if _is_stored(first) or len(first.children_by_field_name("declarator")) != 1:
        scope.refuse(node, f"counters `{text_of(first)}`")
        return None
    kind = text_of(first.child_by_field_name("type"))
    start = first.child_by_field_name("declarator")
    if kind not in WHOLE or start is None or start.type != "init_declarator":
        scope.refuse(node, f"counter of type `{kind}`")
        return None
    target, lower = (start.child_by_field_name(name) for name in ("declarator", "value"))
    variable = text_of(target)
    upper = condition.child_by_field_name("right")
    if target is None or target.type != "identifier" or lower is None or upper is None:
        scope.refuse(node, f"counter `{text_of(first)}`")
        return None
    if text_of(condition.child_by_field_name("left")) != variable:
        scope.refuse(node, f"condition `{text_of(condition)}`")
        return None
    if variable in outer or variable in scope.types or variable in scope.arrays:
        # A name with two meanings is not followed.
        scope.refuse(node, f"counter `{variable}` that hides another name")
        return None
    if text_of(condition.child_by_field_name("operator")) not in ("<", "<="):
        scope.refuse(node, f"condition `{text_of(condition)}`")
        return None
    step = _step(update, variable)
    is_size = scope.is_size(upper)
    end = Polynomial.name(text_of(upper)) if is_size else polynomial_of(upper)
    upper_text = text_of(upper)
    if text_of(condition.child_by_field_name("operator")) == "<=" and end is not None:
        end = end + Polynomial.number(1)
        upper_text = f"({upper_text}) + 1"
        if len(end.names) == 1 and end == Polynomial.name(*end.names):
            (upper_text,) = end.names
    bounds = polynomial_of(lower), end
    if step is None:
        scope.refuse(node, f"step `{text_of(update)}`")
        return None
    if bounds[0] is None or bounds[1] is None:
        bound = text_of(lower if bounds[0] is None else upper)
        scope.refuse(node, f"bound `{bound}`")
        return None
    first_value = bounds[0].constant
    if kind in NARROW and first_value is not None and first_value >= NARROW_LIMIT:
        scope.refuse(node, f"bound `{first_value}` of an `{kind}`")
        return None
    known = {**outer, variable: kind}
    for name in identifiers(lower) | (set() if is_size else identifiers(upper)):
        # A recognised body assigns no whole number, so those of the loops around are fixed, too.
        if not (outer[name] in WHOLE if name in outer else scope.fixed(name)):
            scope.refuse(node, f"bound `{name}`, which may change or is no known number")
            return None
    if any(
        text_of(child) == variable
        for each in walk(body)
        if each.type in ("assignment_expression", "update_expression")
        for child in each.children[:2]
    ):
        scope.refuse(node, f"counter `{variable}` that the body changes")
        return None
    counts[variable] = counts.get(variable, 0) + 1
    number = "" if counts[variable] == 1 else str(counts[variable])
    name = f"{path}/{variable}{number}"
    statements = _statements(body, scope, name, known)
    if statements is None:
        return None
    if any("collapse" in pragma for pragma in pragmas):
        # OpenMP takes both loops as one: nothing may come between them.
        statements = tuple(
            dataclasses.replace(each, pragmas=(*each.pragmas, *pragmas))
            if isinstance(each, CppLoop)
            else each
            for each in statements
        )
    return CppLoop(
        node,
        name,
        variable,
        kind,
        bounds[0],
        bounds[1],
        text_of(lower),
        upper_text,
        step,
        statements,
        pragmas,
    )


def _step(update: Node, variable: str) -> int | None:
    text = text_of(update).replace(" ", "")
    if text in (f"++{variable}", f"{variable}++"):
        return 1
    found = re.fullmatch(rf"{re.escape(variable)}\+=([1-9]\d*)", text)
    return int(found[1]) if found else None


def _statements(
    body: Node, scope: CppScope, path: str, known: dict[str, str]
) -> tuple[CppStatement, ...] | None:
    """Return a body's statements; None if one of them is not understood."""
    nodes = children(body) if body.type == "compound_statement" else [body]
    found: list[CppStatement] = []
    pragmas: list[str] = []
    counts: dict[str, int] = {}
    known = dict(known)
    for node in nodes:
        if node.type == "preproc_call":
            pragmas.append(text_of(node).strip())
            continue
        statement: CppStatement | None = None
        if node.type == "declaration" and (several := _lets(node, scope, known)):
            if pragmas:
                scope.refuse(node, f"directive `{pragmas[-1]}` before a statement")
                return None
            found += several
            known |= {each.name: each.type for each in several}
            continue
        if node.type == "for_statement":
            statement = _loop(node, scope, path, tuple(pragmas), known, counts)
        elif pragmas:
            scope.refuse(node, f"directive `{pragmas[-1]}` before a statement")
            return None
        elif node.type == "declaration":
            statement = _buffer(node, scope, known) or _let(node, scope, known)
            if isinstance(statement, CppLet):
                if any(statement.name in names for names in (known, scope.types, scope.arrays)):
                    scope.refuse(node, f"`{statement.name}`, which hides another name,")
                    return None
                known[statement.name] = statement.type
            elif statement is not None:
                known[statement.name] = BUFFER
        elif node.type == "expression_statement":
            statement = _assign(node, scope, known)
        if statement is None:
            if node.type != "for_statement":
                scope.refuse(node, _told(node))
            return None
        pragmas = []
        found.append(statement)
    return tuple(found)


_WORDS = {
    "if_statement": "`if`",
    "while_statement": "`while`",
    "do_statement": "`do`",
    "for_range_loop": "`for` over a range",
    "continue_statement": "`continue`",
    "break_statement": "`break`",
    "return_statement": "`return`",
    "switch_statement": "`switch`",
    "compound_statement": "a block of its own",
}
_LONGEST = 60  # characters of a statement in a reason


def _told(node: Node) -> str:
    """Return what a statement is, for a reader."""
    text = " ".join(text_of(node).split())
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    word = _WORDS.get(node.type)
    return f"{word} in a loop" if word else f"`{text}`"


def _lets(node: Node, scope: CppScope, known: dict[str, str]) -> list[CppLet]:
    """Return the numbers that a declaration of several numbers makes; none if it is another."""
    parts = node.children_by_field_name("declarator")
    kind = text_of(node.child_by_field_name("type"))
    if len(parts) < 2 or kind not in (*WHOLE, *FLOATS) or _is_stored(node):
        return []
    known, found = dict(known), list[CppLet]()
    for part in parts:
        target, value = (part.child_by_field_name(name) for name in ("declarator", "value"))
        if part.type != "init_declarator" or target is None or target.type != "identifier":
            return []
        name = text_of(target)
        if value is None or any(name in names for names in (known, scope.types, scope.arrays)):
            return []
        if not is_pure(value, scope, known):
            return []
        found.append(CppLet(node, name, kind, value, is_exact(kind, value, scope, known)))
        known[name] = kind
    return found


def _let(node: Node, scope: CppScope, known: dict[str, str]) -> CppLet | None:
    kind = text_of(node.child_by_field_name("type"))
    parts = [part for part in children(node) if part.type == "init_declarator"]
    if kind not in (*WHOLE, *FLOATS) or len(parts) != 1:
        return None
    if _is_stored(node):
        return None  # a static variable keeps its value from one iteration to the next
    target, value = (parts[0].child_by_field_name(name) for name in ("declarator", "value"))
    if target is None or target.type != "identifier" or value is None:
        return None
    if not is_pure(value, scope, known):
        return None
    return CppLet(node, text_of(target), kind, value, is_exact(kind, value, scope, known))


def _buffer(node: Node, scope: CppScope, known: dict[str, str]) -> CppBuffer | None:
    """Return the vector that a declaration makes, or None."""
    found = _VECTOR.fullmatch(re.sub(r"\s", "", text_of(node.child_by_field_name("type"))))
    part = node.child_by_field_name("declarator")
    if not found or part is None or len(node.children_by_field_name("declarator")) != 1:
        return None
    # A parser cannot tell vector(length) from a function that takes a length.
    given = part.child_by_field_name("value") or part.child_by_field_name("parameters")
    target = part.child_by_field_name("declarator")
    if target is None or target.type != "identifier" or given is None or _is_stored(node):
        return None
    if given.type not in ("argument_list", "parameter_list"):
        return None
    parts = re.fullmatch(
        rf"\((\w+)(,[-+]?(\d+(\.\d*)?f?|{_LIMIT}))?\)", text_of(given).replace(" ", "")
    )
    if parts is None or not (known.get(parts[1]) in WHOLE or scope.fixed(parts[1])):
        return None
    name = text_of(target)
    array = CppArray(name, found[1], True)
    if name in known or name in scope.types or name in scope.arrays:
        return None
    if scope.buffers.setdefault(name, array) != array:
        return None
    return CppBuffer(node, name, found[1])


def _is_stored(declaration: Node) -> bool:
    """Return True for ``static`` and the like."""
    return any(child.type == "storage_class_specifier" for child in declaration.children)


def _assign(node: Node, scope: CppScope, known: dict[str, str]) -> CppAssign | None:
    (inner,) = children(node) or [node]
    if inner.type != "assignment_expression":
        return None
    target, value = inner.child_by_field_name("left"), inner.child_by_field_name("right")
    operator = text_of(inner.child_by_field_name("operator"))
    if target is None or value is None or operator not in _OPERATORS:
        return None
    if not is_pure(value, scope, known):
        return None
    if target.type == "identifier":
        kind = known.get(text_of(target))
        return CppAssign(node, target, operator, value) if kind in FLOATS else None
    if target.type != "subscript_expression" or not is_element(target, scope, known):
        return None
    array = scope.arrays.get(text_of(target.child_by_field_name("argument")))
    return CppAssign(node, target, operator, value) if array is None or array.output else None
