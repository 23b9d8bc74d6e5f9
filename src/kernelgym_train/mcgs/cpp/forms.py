"""What is recognised of C++ text: functions, counted loops, and the statements in them.

`kernelgym_train.mcgs.cpp.loops` reads them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.polynomial import Polynomial
from kernelgym_train.mcgs.cpp.syntax import identifiers, index_node, text_of

FLOATS = ("float", "double")
WHOLE = (
    *("int", "long", "int64_t", "int32_t", "size_t", "std::size_t", "std::int64_t"),
    *("long long", "std::int32_t"),
)
NARROW = ("int", "int32_t", "std::int32_t")
"""Whole numbers of 32 bits, which cut off the upper half of a longer number."""


ZERO = Polynomial.number(0)


@dataclass(frozen=True, slots=True)
class CppArray:
    """Memory that holds numbers: a tensor's, a vector's, or what a pointer points to."""

    name: str
    """Name of the tensor, the vector, or the parameter that is a pointer."""
    element: str
    """Type of the elements, such as ``float``."""
    output: bool
    """Whether no other array shares the memory. An array that may share is written in the order of
    the text alone."""
    tensor: bool = False
    """Whether the name is a tensor's."""


@dataclass(frozen=True, slots=True)
class CppPlace:
    """What a pointer, an accessor or a vector gives access to."""

    array: str
    element: str
    """Type of the elements."""
    offset: Polynomial | None = ZERO
    """Index of the first element in the array; None if it is no polynomial."""
    dims: int = 1
    """Number of subscripts of an element."""
    strided: bool = False
    """Whether neighbouring subscripts may be apart in memory, as in an accessor."""


@dataclass(frozen=True, slots=True)
class CppElement:
    """One access to an array's element in a statement."""

    node: Node
    array: str
    index: tuple[Polynomial | None, ...]
    """Subscripts; None for one that is no polynomial of unchanging names. Accessors have a 0 before
    their subscripts."""
    writes: bool
    loops: tuple[CppLoop, ...] = ()
    """Loops around the access in a function that the statement calls."""

    @property
    def flat(self) -> Polynomial | None:
        """The one subscript of an array whose elements lie side by side; None for others."""
        return self.index[0] if len(self.index) == 1 else None


@dataclass(frozen=True, slots=True)
class UnreadLoop:
    """A loop that is not recognised."""

    line: int
    """Line of the statement that is not understood, from 1, in the C++ text."""
    why: str
    """What is not understood, such as ```next()```."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.why} is not understood"


@dataclass(frozen=True, slots=True)
class CppLet:
    """A declaration of one number or pointer, in a loop's body."""

    node: Node
    name: str
    type: str
    value: Node
    exact: Polynomial | None
    """Value of a whole number that holds it without being cut off; None for others."""
    elements: tuple[CppElement, ...] = ()


@dataclass(frozen=True, slots=True)
class CppBuffer:
    """A declaration of an array or a ``std::vector`` of numbers, in a loop's body."""

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
    elements: tuple[CppElement, ...] = ()


@dataclass(frozen=True, slots=True)
class CppOther:
    """Any other statement whose accesses are all known, such as a branch."""

    node: Node
    elements: tuple[CppElement, ...]
    assigned: frozenset[str]
    """Numbers that the statement changes and does not declare."""
    declared: Mapping[str, str]
    """Types of the names that the statement declares, for itself alone or for those after it."""

    @property
    def is_declaration(self) -> bool:
        """Whether later statements can use the names that this statement declares."""
        return self.node.type.endswith(("declarator", "identifier"))


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
        names = self.lower.names | self.upper.names
        # An expression that counts as one number has a text of several names.
        return frozenset(each for name in names for each in re.findall(r"[^\W\d]\w*", name))

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
        """Types of the numbers and pointers that the body declares, by name."""
        found: dict[str, str] = {}
        for each in self.body:
            if isinstance(each, CppLet):
                found[each.name] = each.type
            elif isinstance(each, CppOther):
                found |= each.declared
        return found

    def values(self) -> Iterator[Node]:
        """Yield the values that the body's own statements compute."""
        for statement in self.body:
            if isinstance(statement, CppLet | CppAssign):
                yield statement.value


CppStatement = CppLet | CppAssign | CppBuffer | CppOther | CppLoop


@dataclass(frozen=True, slots=True)
class CppSummary:
    """What a function does that is given pointers, in place of its calls."""

    parameters: Mapping[str, str | CppPlace]
    body: tuple[CppStatement, ...]
    locals: frozenset[str]
    """Arrays and vectors that the function declares."""


@dataclass(frozen=True, slots=True)
class CppFunction:
    """A C++ function, with the loops that were recognised in it."""

    name: str
    arrays: dict[str, CppArray]
    types: dict[str, str]
    """Types by name of the numbers and pointers that the function declares outside of loops, and of
    global constants."""
    loops: tuple[CppLoop, ...]
    """Recognised loops that lie in no other recognised loop."""
    elements: Mapping[Node, CppElement]
    """Accesses in recognised loops."""

    def names(self, loop: CppLoop) -> set[str]:
        """Return the names that a loop, or the function around it, uses."""
        return {*identifiers(loop.node), *self.arrays, *self.types}

    def array_of(self, element: Node) -> CppArray:
        """Return the array that an accessed element belongs to."""
        return self.arrays[self.elements[element].array]

    def stride(self, element: Node, variable: str) -> int | None:
        """Return the factor of a variable in an array index: 4 for ``i`` in ``a[4 * i + j]``.

        None if the index is not linear in the variable, or the factor no constant.
        """
        found = self.elements[element].flat
        stride = None if found is None else found.coefficient(variable)
        return None if stride is None else stride.constant

    def plain_name(self, element: Node) -> str | None:
        """Return the pointer's name of an element ``name[subscript]``; None for other forms."""
        named = element.child_by_field_name("argument")
        found = self.elements[element].flat
        if named is None or named.type != "identifier" or found is None:
            return None
        return None if index_node(element) is None else text_of(named)

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


def walk_loops(loops: tuple[CppStatement, ...]) -> Iterator[CppLoop]:
    """Yield loops and all loops in them, outer ones first."""
    for loop in loops:
        if isinstance(loop, CppLoop):
            yield loop
            yield from walk_loops(loop.body)


def only_inner(loop: CppLoop) -> CppLoop | None:
    """Return the loop without directives that is another loop's whole body, or None."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    return inner if isinstance(inner, CppLoop) and not inner.pragmas else None


def inner_loops(loop: CppLoop) -> tuple[CppLoop, ...]:
    """Return the loops directly in a loop's body."""
    return tuple(each for each in loop.body if isinstance(each, CppLoop))
