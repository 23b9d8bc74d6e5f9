"""Recognises counted loops in C++ text, and the statements in them.

Contract: `read_functions` returns only loops that it understands completely. A loop is recognised
if it counts one whole number up by a constant to a bound that it does not change, and its body
holds only statements that `kernelgym_train.mcgs.cpp.expressions.Walk` understands, and such loops.
Declarations and assignments are told apart; an understood statement of another kind, such as a
branch, is known by what it reads and writes. A statement that is not understood (a jump out, a call
of an unknown function, an address, a name whose type is not known) makes the loop, and each loop
around it, unrecognised; loops beside it and in it are read all the same. `unread_loops` says why a
loop is not recognised.

Memory has one name in a function, however it is reached: by ``data_ptr`` of a tensor at its use or
bound to a pointer, by a pointer into it, or by an accessor. It is an output if no other name leads
to it: tensors and vectors that the function makes and uses for nothing else before it returns them,
tensors that it is given and writes (as ``out=`` in PyTorch, they share no memory with others), and
what a helper function's callers pass of these. Other memory may be written too, but then no order
of the loop's iterations is proven to be as good as another. Subscripts of an accessor are taken to
lie within its sizes.

Needs tree-sitter. Values in memory and pointers that move are not followed.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.declarations import (
    declared_in,
    function_name,
    parameters_of,
    scope_of,
    text_in,
    type_of,
)
from kernelgym_train.mcgs.cpp.expressions import NotRead, Walk
from kernelgym_train.mcgs.cpp.forms import (
    NARROW,
    WHOLE,
    CppAssign,
    CppBuffer,
    CppFunction,
    CppLet,
    CppLoop,
    CppOther,
    CppPlace,
    CppStatement,
    CppSummary,
    UnreadLoop,
    inner_loops,
    walk_loops,
)
from kernelgym_train.mcgs.cpp.polynomial import Polynomial
from kernelgym_train.mcgs.cpp.proofs import carried
from kernelgym_train.mcgs.cpp.scope import (
    CppScope,
    CppText,
    Known,
    calls_of,
    declared_names,
)
from kernelgym_train.mcgs.cpp.syntax import (
    children,
    parsed,
    plain_text,
    text_of,
    walk,
)
from kernelgym_train.mcgs.cpp.whole import NARROW_LIMIT, exact_value, kind_of

_LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")


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
    text = text_in(root, {name: int(macros[name]) for name in numbers})
    unread: dict[tuple[int, int], str] = {}
    scopes: dict[Node, CppScope] = {}
    for node in (each for each in walk(root) if each.type == "function_definition"):
        # A name that is a macro may mean anything; a statement that is one does nothing to loops.
        meant = sorted(_macros_in(node, set(macros) - numbers))
        if meant:
            refused = [each for each in walk(node) if each.type in _LOOPS]
            unread |= {each.start_point: f"macro `{meant[0]}` in the function" for each in refused}
        elif (scope := scope_of(node, text)) is not None:
            scopes[node] = scope
    for node, scope in scopes.items():
        name = function_name(node)
        text.calls[id(scope)] = list(calls_of(name, root, scopes))
        if text.own[name] == 1:
            text.scopes[name] = scope
    found: list[CppFunction] = []
    for node, scope in scopes.items():
        loops = tuple(_outermost(scope.body, scope, function_name(node), {}, {}))
        if scope.pointers and text.own[function_name(node)] == 1:
            _summarise(node, text)
        unread |= scope.unread
        if loops:
            kinds = {**text.constants, **scope.names}
            found.append(
                CppFunction(
                    function_name(node),
                    scope.arrays(),
                    {name: type_of(kind) for name, kind in kinds.items()},
                    loops,
                    scope.elements,
                )
            )
    told = (UnreadLoop(place[0] + 1, why) for place, why in sorted(unread.items()))
    return tuple(found), tuple(dict.fromkeys(told))


def _macros_in(node: Node, macros: set[str]) -> set[str]:
    """Return the macros used in a C++ function, except those whose call is a statement."""
    return {
        text_of(each)
        for each in walk(node)
        if each.type == "identifier" and text_of(each) in macros and not _is_check(each)
    }


def _is_check(name: Node) -> bool:
    """Return True for a macro call that is a statement outside of loops, such as TORCH_CHECK."""
    call = name.parent
    statement = None if call is None else call.parent
    if statement is None or statement.type != "expression_statement":
        return False
    while statement is not None and statement.type not in (*_LOOPS, "lambda_expression"):
        statement = statement.parent
    return statement is None


def each_loop(cpp: str) -> Iterator[tuple[CppFunction, CppLoop]]:
    """Yield every recognised loop of a text with its function, outer loops first."""
    for function in read_functions(cpp):
        for loop in walk_loops(function.loops):
            yield function, loop


def innermost_loops(cpp: str) -> list[CppLoop]:
    """Return the recognised loops of a text that hold no other loop."""
    return [loop for _, loop in each_loop(cpp) if not inner_loops(loop)]


def _outermost(
    node: Node, scope: CppScope, path: str, known: Mapping[str, Known], counts: dict[str, int]
) -> Iterator[CppLoop]:
    """Yield the recognised loops below a statement that lie in no other recognised loop.

    Args:
        node: The statement.
        scope: Declarations of the function outside of its loops.
        path: Name of the function.
        known: Names that the statements around this one declare.
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
            try:
                loop = _loop(child, scope, path, tuple(pragmas), known, counts)
            except NotRead as error:
                scope.refuse(error.node, str(error))
        if loop is not None:
            yield loop
        elif child.type in _LOOPS:
            if child.type != "for_statement":
                _refuse(child, scope, known)
            if not any("collapse" in pragma or "simd" in pragma for pragma in pragmas):
                yield from _inside(child, scope, path, known, counts)
        elif any(each.type == "for_statement" for each in walk(child)):
            yield from _inside(child, scope, path, known, counts)
        elif child.type == "declaration" and node != scope.body:
            known |= declared_in(child, scope, known)
        pragmas = []


def _summarise(function: Node, text: CppText) -> None:
    """Keep the effects of a function with pointer parameters, if its whole body is understood."""
    declarator = function.child_by_field_name("declarator")
    scope = scope_of(function, text, inside=False)
    if scope is None or declarator is None:
        return
    given = [each for each in walk(declarator) if each.type == "parameter_declaration"]
    parameters = parameters_of(declarator, text)
    places = {name for name, kind in parameters.items() if isinstance(kind, CppPlace)}
    if len(given) != len(parameters) or places & scope.written:
        return
    try:
        body = _statements(scope.body, scope, function_name(function), {}, returns=True)
    except NotRead:
        return
    text.summaries[function_name(function)] = CppSummary(parameters, body, frozenset(scope.locals))


def _refuse(loop: Node, scope: CppScope, known: Mapping[str, Known]) -> None:
    """Record why a loop without a recognised counter is not understood."""
    try:
        Walk(scope, known).statement(loop)
    except NotRead as error:
        scope.refuse(error.node, str(error))
    else:
        scope.refuse(loop, f"`{text_of(loop.children[0])}` in this form")


def _inside(
    node: Node, scope: CppScope, path: str, known: Mapping[str, Known], counts: dict[str, int]
) -> Iterator[CppLoop]:
    """Yield the recognised loops inside a statement that is not understood as a whole.

    None if it declares a name again: which one a loop means is not followed.
    """
    if set(declared_names(node)) & {*known, *scope.names, *scope.text.constants}:
        return
    known = dict(known)
    for child in children(node):
        if child.type == "declaration" and node.type == "for_statement":
            known |= declared_in(child, scope, known)
        elif child.type == "abstract_function_declarator":  # of a lambda
            known |= parameters_of(child, scope.text)
    yield from _outermost(node, scope, path, known, counts)


def _loop(
    node: Node,
    scope: CppScope,
    path: str,
    pragmas: tuple[str, ...],
    outer: Mapping[str, Known],
    counts: dict[str, int],
) -> CppLoop:
    """Read a counted C++ loop.

    Raises:
        NotRead: If it is not understood.
    """
    first, condition, update, body = (
        node.child_by_field_name(name) for name in ("initializer", "condition", "update", "body")
    )
    if first is None or condition is None or update is None or body is None:
        raise NotRead(node, "`for` without a start, a condition or an update")
    if first.type != "declaration" or condition.type != "binary_expression":
        raise NotRead(node, "`for` that declares no counter or compares nothing")
    kind = plain_text(first.child_by_field_name("type"))
    parts = first.children_by_field_name("declarator")
    stored = any(child.type == "storage_class_specifier" for child in first.children)
    if stored or len(parts) != 1 or parts[0].type != "init_declarator":
        raise NotRead(node, f"counters `{text_of(first)}`")
    target, lower = (parts[0].child_by_field_name(name) for name in ("declarator", "value"))
    if kind == "auto" and lower is not None:
        kind = kind_of(lower, scope, outer)
    if kind not in WHOLE:
        raise NotRead(node, f"counter of type `{kind}`")
    variable, upper = text_of(target), condition.child_by_field_name("right")
    operator = text_of(condition.child_by_field_name("operator"))
    left = condition.child_by_field_name("left")
    if text_of(left) != variable:
        left, upper, operator = upper, left, operator.replace(">", "<")
    if target is None or target.type != "identifier" or lower is None or upper is None:
        raise NotRead(node, f"counter `{text_of(first)}`")
    if text_of(left) != variable or operator not in ("<", "<=", "!="):
        raise NotRead(node, f"condition `{text_of(condition)}`")
    if variable in outer or scope.lookup(variable, {}) is not None:
        # A name with two meanings is not followed.
        raise NotRead(node, f"counter `{variable}` that hides another name")
    step = _step(update, variable, scope)
    if step is None or (operator == "!=" and step != 1):
        raise NotRead(node, f"step `{text_of(update)}`")
    walked = Walk(scope, outer)
    low, high = walked.bound(lower), walked.bound(upper)
    upper_text = text_of(upper)
    if operator == "<=":
        high = high + Polynomial.number(1)
        upper_text = f"({upper_text}) + 1"
        if len(high.names) == 1 and high == Polynomial.name(*high.names):
            (upper_text,) = high.names
    if kind in NARROW and low.constant is not None and low.constant >= NARROW_LIMIT:
        raise NotRead(node, f"bound `{low.constant}` of an `{kind}`")
    if any(
        text_of(child) == variable
        for each in walk(body)
        if each.type in ("assignment_expression", "update_expression")
        for child in each.children[:2]
    ):
        raise NotRead(node, f"counter `{variable}` that the body changes")
    counts[variable] = counts.get(variable, 0) + 1
    number = "" if counts[variable] == 1 else str(counts[variable])
    name = f"{path}/{variable}{number}"
    statements = _statements(body, scope, name, {**outer, variable: kind})
    if variable in carried(statements):
        raise NotRead(node, f"counter `{variable}` that the body changes")
    if any("collapse" in pragma for pragma in pragmas):
        # OpenMP takes both loops as one: nothing may come between them.
        statements = tuple(
            dataclasses.replace(each, pragmas=(*each.pragmas, *pragmas))
            if isinstance(each, CppLoop)
            else each
            for each in statements
        )
    lower_text = text_of(lower)
    return CppLoop(
        node, name, variable, kind, low, high, lower_text, upper_text, step, statements, pragmas
    )


def _step(update: Node, variable: str, scope: CppScope) -> int | None:
    """Return the constant step of a loop's counter; None if it is not a constant."""
    text = plain_text(update)
    if text in (f"++{variable}", f"{variable}++"):
        return 1
    found = re.fullmatch(rf"{re.escape(variable)}\+=(?:([1-9]\d*)|(\w+))", text)
    if found is None:
        return None
    if found[1]:
        return int(found[1])
    is_fixed = scope.fixed(found[2], {})
    return (scope.values.get(found[2]) or None) if is_fixed else None


def _statements(
    body: Node, scope: CppScope, path: str, known: Mapping[str, Known], *, returns: bool = False
) -> tuple[CppStatement, ...]:
    """Return the statements of a C++ body.

    Args:
        body: The body.
        scope: Declarations of the function outside of its loops.
        path: Name of the loop or the function.
        known: Names that the loops around the body declare.
        returns: Whether the last statement may return a number.

    Raises:
        NotRead: If one of them is not understood.
    """
    nodes = children(body) if body.type == "compound_statement" else [body]
    last = None
    if returns and nodes and nodes[-1].type == "return_statement":
        (*nodes, last) = nodes
    found: list[CppStatement] = []
    pragmas: list[str] = []
    counts: dict[str, int] = {}
    known = dict(known)
    for node in nodes:
        if node.type == "preproc_call":
            pragmas.append(text_of(node).strip())
            continue
        if pragmas and node.type != "for_statement":
            raise NotRead(node, f"directive `{pragmas[-1]}` before a statement")
        try:
            if node.type == "for_statement":
                found.append(_loop(node, scope, path, tuple(pragmas), known, counts))
                pragmas = []
                continue
        except NotRead:
            if pragmas or _holds_loop(node):
                raise
        if node.type != "declaration" and _holds_loop(node):
            raise NotRead(node, _told(node))
        found += _plain(node, scope, known)
    if last is not None:
        walked = Walk(scope, known, may_return=True)
        walked.statement(last)
        found.append(_other(last, walked))
    return tuple(found)


def _holds_loop(node: Node) -> bool:
    """Return True if a statement that is not understood may still contain a readable loop."""
    return any(each.type == "for_statement" for each in walk(node) if each != node)


def _told(node: Node) -> str:
    """Return the name of a C++ statement around a loop for a message, such as ```while```."""
    word = node.type.partition("_")[0]
    return "a nested block" if word == "compound" else f"`{word}` around a loop"


def _plain(node: Node, scope: CppScope, known: dict[str, Known]) -> Iterator[CppStatement]:
    """Yield the forms of a statement other than a counted loop; add its declarations to `known`."""
    parts = node.children_by_field_name("declarator") if node.type == "declaration" else []
    for part in parts:
        walked = Walk(scope, known)
        name = walked.declare(node, part)
        kind, value = walked.known[name], part.child_by_field_name("value")
        known[name] = kind
        if isinstance(kind, CppPlace) and kind.array == name and not walked.elements:
            yield CppBuffer(name, kind.element)
        elif value is None or walked.assigned:
            yield _other(part, walked)
        else:
            exact = None if isinstance(kind, CppPlace) else exact_value(kind, value, scope, known)
            yield CppLet(node, name, type_of(kind), value, exact, tuple(walked.elements))
    if parts:
        return
    walked = Walk(scope, known)
    walked.statement(node)
    (inner, *_) = [*children(node), node]
    target, value = (inner.child_by_field_name(name) for name in ("left", "right"))
    plain = node.type == "expression_statement" and inner.type == "assignment_expression"
    if plain and target is not None and value is not None:
        if walked.assigned <= {text_of(target)} and sum(e.writes for e in walked.elements) < 2:
            operator = text_of(inner.child_by_field_name("operator"))
            changes = walked.assigned or walked.elements[0].writes
            if changes and not any(each.writes for each in walked.elements if each.node != target):
                yield CppAssign(node, target, operator, value, tuple(walked.elements))
                return
    yield _other(node, walked)


def _other(node: Node, walked: Walk) -> CppOther:
    declared = {name: type_of(kind) for name, kind in walked.declared.items()}
    # What a subscript is that depends on the statement's own names is not known outside of it.
    elements = (
        dataclasses.replace(
            each,
            index=tuple(
                one if one and not one.names & set(declared) else None for one in each.index
            ),
        )
        for each in walked.elements
    )
    return CppOther(node, tuple(elements), frozenset(walked.assigned - set(declared)), declared)
