"""Recognises counted loops in C++ text, and the statements in them.

Contract: `read_functions` returns only loops that it understands completely. A loop is recognised
if it
counts one whole number up by a constant to a bound that it does not change, and its body holds
nothing but declarations of numbers and vectors of numbers, assignments to numbers and array
elements, calls of known functions without side effects, choices between such values that read no
element, and such loops. Any other statement in a body (a branch, a jump, another call, an address,
a name whose type is not known) makes the loop, and each loop around it, unrecognised. Bounds and
subscripts are computed from whole numbers alone.

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
from dataclasses import dataclass

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.expressions import (
    BUFFER,
    NARROW_LIMIT,
    is_element,
    is_exact,
    is_pure,
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
_OPERATORS = frozenset(("+", "-", "*", "/", "=", "+=", "-=", "*="))


@dataclass(frozen=True, slots=True)
class CppLet:
    """A declaration of one number, in a loop's body."""

    node: Node
    name: str
    type: str
    value: Node
    exact: bool
    """Whether the number is whole and holds the polynomial's value without being cut off."""


@dataclass(frozen=True, slots=True)
class CppBuffer:
    """A declaration of a ``std::vector`` of numbers, in a loop's body."""

    node: Node
    name: str
    element: str


@dataclass(frozen=True, slots=True)
class CppAssign:
    """An assignment to a number or an array element."""

    node: Node
    target: Node
    operator: str
    value: Node


@dataclass(frozen=True, slots=True)
class CppLoop:
    """A counted loop."""

    node: Node
    name: str
    """Name of the function, then the variables of the loops down to this one, separated by ``/``;
    loops with the same variable are numbered."""
    variable: str
    type: str
    lower: Polynomial
    upper: Polynomial
    lower_text: str
    upper_text: str
    step: int
    body: tuple[CppStatement, ...]
    pragmas: tuple[str, ...]
    """Directives right before the loop, or before a loop around it that they collapse with it."""

    @property
    def body_node(self) -> Node:
        """Node of the statement that the loop repeats."""
        body = self.node.child_by_field_name("body")
        assert body is not None, "a recognised loop has a body"
        return body

    @property
    def head(self) -> str:
        """Text of the loop up to its closing parenthesis, without a comment that may follow."""
        closing = next(child for child in reversed(self.node.children) if child.type == ")")
        data = text_of(self.node).encode()
        return data[: closing.end_byte - self.node.start_byte].decode()

    @property
    def column(self) -> int:
        """Number of characters before the loop in its line."""
        return self.node.start_point.column

    @property
    def bounds(self) -> frozenset[str]:
        """Names in the lower and the upper bound."""
        return self.lower.names | self.upper.names

    @property
    def has_plain_bounds(self) -> bool:
        """Whether both bounds are a name or a constant, whose evaluation cannot overflow."""
        texts = (self.lower_text, self.upper_text)
        return all(text.isidentifier() or text.isdecimal() for text in texts)

    @property
    def wide_type(self) -> str:
        """Type of a counter that goes beyond the upper bound by a block, and does not overflow."""
        return "int64_t" if self.type in NARROW else self.type

    @property
    def is_in_block(self) -> bool:
        """Whether other statements can be put before the loop."""
        parent = self.node.parent
        return parent is not None and parent.type == "compound_statement"

    @property
    def lets(self) -> dict[str, str]:
        """Types of the numbers that the body declares, by name."""
        return {each.name: each.type for each in self.body if isinstance(each, CppLet)}

    def values(self) -> Iterator[Node]:
        """Yield the values that the body's own statements compute."""
        for statement in self.body:
            if isinstance(statement, CppLet | CppAssign):
                yield statement.value


CppStatement = CppLet | CppAssign | CppBuffer | CppLoop


@dataclass(frozen=True, slots=True)
class CppFunction:
    """A C++ function, with the loops that were recognised in it."""

    name: str
    arrays: dict[str, CppArray]
    types: dict[str, str]
    """Types by name of the numbers that the function declares outside of loops, and of global
    constants."""
    loops: tuple[CppLoop, ...]
    """Recognised loops that lie in no other recognised loop."""

    def names(self, loop: CppLoop) -> set[str]:
        """Return the names that a loop, or the function around it, uses."""
        return {*identifiers(loop.node), *self.arrays, *self.types}

    def array_of(self, element: Node) -> CppArray:
        """Return the array that ``array[subscript]`` is an element of."""
        return self.arrays[text_of(element.child_by_field_name("argument"))]

    def declared_in_loops(self) -> dict[str, str]:
        """Return the types of numbers that loops declare; empty where declarations differ."""
        known: dict[str, str] = {}
        for loop in walk_loops(self.loops):
            for name, kind in loop.lets.items():
                known[name] = kind if known.get(name, kind) == kind else ""
        return known


def directive_of(loop: CppLoop) -> Node | None:
    """Return the directive right before a loop, ignoring comments, or None."""
    node = loop.node.prev_named_sibling
    while node is not None and node.type == "comment":
        node = node.prev_named_sibling
    return node if node is not None and node.type == "preproc_call" else None


@functools.lru_cache(maxsize=256)
def read_functions(cpp: str) -> tuple[CppFunction, ...]:
    """Return the functions of a C++ text that hold a recognised loop."""
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
    # A name that is a macro may mean anything.
    plain = [node for node in defined if not identifiers(node) & (set(macros) - numbers)]
    found = (_function(node, own, fixed) for node in plain)
    return tuple(each for each in found if each is not None and each.loops)


def walk_loops(loops: tuple[CppStatement, ...]) -> Iterator[CppLoop]:
    """Yield loops and all loops in them, outer ones first."""
    for loop in loops:
        if isinstance(loop, CppLoop):
            yield loop
            yield from walk_loops(loop.body)


def each_loop(cpp: str) -> Iterator[tuple[CppFunction, CppLoop]]:
    """Yield every recognised loop of a text with its function, outer loops first."""
    for function in read_functions(cpp):
        for loop in walk_loops(function.loops):
            yield function, loop


def innermost_loops(cpp: str) -> list[CppLoop]:
    """Return the recognised loops of a text that hold no other loop."""
    return [loop for _, loop in each_loop(cpp) if not inner_loops(loop)]


def inner_loops(loop: CppLoop) -> tuple[CppLoop, ...]:
    """Return the loops directly in a loop's body."""
    return tuple(each for each in loop.body if isinstance(each, CppLoop))


def _name_of(function: Node) -> str:
    declarator = function.child_by_field_name("declarator")
    return text_of(None if declarator is None else declarator.child_by_field_name("declarator"))


def _function(node: Node, own: frozenset[str], fixed: Mapping[str, str]) -> CppFunction | None:
    declarator, body = node.child_by_field_name("declarator"), node.child_by_field_name("body")
    if declarator is None or body is None or any(each.is_error for each in walk(node)):
        return None
    if declarator.type != "function_declarator":
        return None
    name = _name_of(node)
    scope = CppScope(declarator, body, own, fixed)
    loops = tuple(_outermost(body, scope, name))
    return CppFunction(name, {**scope.arrays, **scope.buffers}, {**fixed, **scope.types}, loops)


def _outermost(node: Node, scope: CppScope, path: str) -> Iterator[CppLoop]:
    """Yield the recognised loops that stand directly in a function's body."""
    pragmas: list[str] = []
    counts: dict[str, int] = {}
    for child in children(node):
        if child.type == "preproc_call":
            pragmas.append(text_of(child).strip())
            continue
        if child.type == "for_statement":
            loop = _loop(child, scope, path, tuple(pragmas), {}, counts)
            if loop is not None:
                yield loop
        pragmas = []


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
        return None
    if first.type != "declaration" or condition.type != "binary_expression":
        return None
    if _is_stored(first) or len(first.children_by_field_name("declarator")) != 1:
        return None
    kind = text_of(first.child_by_field_name("type"))
    start = first.child_by_field_name("declarator")
    if kind not in WHOLE or start is None or start.type != "init_declarator":
        return None
    target, lower = (start.child_by_field_name(name) for name in ("declarator", "value"))
    variable = text_of(target)
    upper = condition.child_by_field_name("right")
    if target is None or target.type != "identifier" or lower is None or upper is None:
        return None
    if text_of(condition.child_by_field_name("left")) != variable:
        return None
    if variable in outer or variable in scope.types or variable in scope.arrays:
        return None  # a name with two meanings is not followed
    if text_of(condition.child_by_field_name("operator")) != "<":
        return None
    step = _step(update, variable)
    bounds = polynomial_of(lower), polynomial_of(upper)
    if step is None or bounds[0] is None or bounds[1] is None:
        return None
    first_value = bounds[0].constant
    if kind in NARROW and first_value is not None and first_value >= NARROW_LIMIT:
        return None
    known = {**outer, variable: kind}
    for name in identifiers(lower) | identifiers(upper):
        # A recognised body assigns no whole number, so those of the loops around are fixed, too.
        if not (outer[name] in WHOLE if name in outer else scope.fixed(name)):
            return None
    if any(
        text_of(child) == variable
        for each in walk(body)
        if each.type in ("assignment_expression", "update_expression")
        for child in each.children[:2]
    ):
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
        text_of(upper),
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
        if node.type == "for_statement":
            statement = _loop(node, scope, path, tuple(pragmas), known, counts)
        elif pragmas:
            return None
        elif node.type == "declaration":
            statement = _buffer(node, scope, known) or _let(node, scope, known)
            if isinstance(statement, CppLet):
                if any(statement.name in names for names in (known, scope.types, scope.arrays)):
                    return None
                known[statement.name] = statement.type
            elif statement is not None:
                known[statement.name] = BUFFER
        elif node.type == "expression_statement":
            statement = _assign(node, scope, known)
        if statement is None:
            return None
        pragmas = []
        found.append(statement)
    return tuple(found)


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
