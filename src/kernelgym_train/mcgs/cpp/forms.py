"""Data types for what is recognised in C++ text: functions, counted loops, and statements.

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
"""Names of whole-number types of 32 bits, which cut off the upper half of a longer number."""


ZERO = Polynomial.number(0)


@dataclass(frozen=True, slots=True)
class CppArray:
    """Memory that holds numbers in a C++ function: a tensor, a vector or a pointer's target."""

    name: str
    """Name of the tensor, the vector, or the parameter that is a pointer."""
    element: str
    """Type of the elements, such as ``float``."""
    output: bool
    """Whether no other name aliases the memory. Loops that write memory with possible aliases keep
    their order."""
    tensor: bool = False
    """Whether the name is that of a tensor."""


@dataclass(frozen=True, slots=True)
class CppPlace:
    """Memory that a C++ pointer, accessor or vector gives access to."""

    array: str
    element: str
    """Type of the elements, such as ``float``."""
    offset: Polynomial | None = ZERO
    """Index of the first element within the array; None if the index is not a polynomial."""
    dims: int = 1
    """Number of subscripts that select an element."""
    strided: bool = False
    """Whether elements with neighbouring subscripts may lie apart in memory, as in an accessor."""


@dataclass(frozen=True, slots=True)
class CppElement:
    """One access to an array's element, in a C++ statement."""

    node: Node
    array: str
    index: tuple[Polynomial | None, ...]
    """Subscripts as polynomials of unchanging names; None for any other subscript. Those of
    an accessor follow a 0."""
    writes: bool
    loops: tuple[CppLoop, ...] = ()
    """Loops around the access within a function that the statement calls."""

    @property
    def flat(self) -> Polynomial | None:
        """The only subscript of an array whose elements are contiguous; None for other arrays."""
        return self.index[0] if len(self.index) == 1 else None


@dataclass(frozen=True, slots=True)
class UnreadLoop:
    """A C++ loop that is not recognised, with the reason."""

    line: int
    """Line of the statement that is not understood, from 1, in the C++ text."""
    why: str
    """Part of the loop that is not understood, such as ```next()```."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.why} is not understood"


@dataclass(frozen=True, slots=True)
class CppLet:
    """Declaration of one number or pointer in a C++ loop's body."""

    node: Node
    name: str
    type: str
    value: Node
    exact: Polynomial | None
    """Value of a whole number as a polynomial, if its type holds it without cutting it off; None
    otherwise."""
    elements: tuple[CppElement, ...] = ()


@dataclass(frozen=True, slots=True)
class CppBuffer:
    """Declaration of an array or a ``std::vector`` of numbers in a C++ loop's body."""

    name: str
    element: str


@dataclass(frozen=True, slots=True)
class CppAssign:
    """Assignment to a number or an array element in a C++ loop's body."""

    node: Node
    target: Node
    operator: str
    value: Node
    elements: tuple[CppElement, ...] = ()


@dataclass(frozen=True, slots=True)
class CppOther:
    """Any other C++ statement whose accesses are all known, such as a branch."""

    node: Node
    elements: tuple[CppElement, ...]
    assigned: frozenset[str]
    """Names of numbers that the statement changes but does not declare."""
    declared: Mapping[str, str]
    """Types of the names that the statement declares, for itself alone or for those after it."""

    @property
    def is_declaration(self) -> bool:
        """Whether later statements can use the names that this C++ statement declares."""
        return self.node.type.endswith(("declarator", "identifier"))


@dataclass(frozen=True, slots=True)
class CppLoop:
    """A C++ loop that counts a whole number up to a bound."""

    node: Node
    name: str
    """Name of the loop: the function, then the variables of the loops down to this one, separated
    by ``/``. Loops with the same variable are numbered."""
    variable: str
    type: str
    lower: Polynomial
    upper: Polynomial
    lower_text: str
    upper_text: str
    step: int
    body: tuple[CppStatement, ...]
    pragmas: tuple[str, ...]
    """Directives directly above the loop, or above an outer loop that they collapse with it."""

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
        """Names that occur in the loop's lower and upper bound."""
        names = self.lower.names | self.upper.names
        # An expression that counts as one number has a text of several names.
        return frozenset(each for name in names for each in re.findall(r"[^\W\d]\w*", name))

    @property
    def has_plain_bounds(self) -> bool:
        """Whether both bounds are a name or a constant, so that evaluating them cannot overflow."""
        texts = (self.lower_text, self.upper_text)
        return all(text.isidentifier() or text.isdecimal() for text in texts)

    @property
    def wide_type(self) -> str:
        """Type for a counter that may pass the loop's upper bound by one block without overflow."""
        return "int64_t" if self.type in NARROW else self.type

    @property
    def is_in_block(self) -> bool:
        """Whether other statements can be inserted before the loop, since it stands in a block."""
        parent = self.node.parent
        return parent is not None and parent.type == "compound_statement"

    @property
    def lets(self) -> dict[str, str]:
        """Types of the numbers and pointers that the loop's body declares, by name."""
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
    """Effects of a C++ function that is given pointers, used in place of its calls."""

    parameters: Mapping[str, str | CppPlace]
    body: tuple[CppStatement, ...]
    locals: frozenset[str]
    """Arrays and vectors that the function declares."""


@dataclass(frozen=True, slots=True)
class CppFunction:
    """A C++ function, with the loops recognised in it."""

    name: str
    arrays: dict[str, CppArray]
    types: dict[str, str]
    """Types by name of the numbers and pointers that the function declares outside of loops, and of
    global constants."""
    loops: tuple[CppLoop, ...]
    """Recognised loops that lie in no other recognised loop."""
    elements: Mapping[Node, CppElement]
    """Accesses to array elements in recognised loops."""

    def names(self, loop: CppLoop) -> set[str]:
        """Return the names that a C++ loop, or the function around it, uses."""
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
        """Return the name of the pointer in ``name[subscript]``; None for other forms."""
        named = element.child_by_field_name("argument")
        found = self.elements[element].flat
        if named is None or named.type != "identifier" or found is None:
            return None
        return None if index_node(element) is None else text_of(named)

    def declared_in_loops(self) -> dict[str, str]:
        """Return the types of numbers that a function's loops declare; empty where they differ."""
        known: dict[str, str] = {}
        for loop in walk_loops(self.loops):
            for name, kind in loop.lets.items():
                known[name] = kind if known.get(name, kind) == kind else ""
        return known


def directive_of(loop: CppLoop) -> Node | None:
    """Return the directive directly above a C++ loop, comments aside; None if there is none."""
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
    """Return the loop that is another loop's whole body and has no directives; None otherwise."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    return inner if isinstance(inner, CppLoop) and not inner.pragmas else None


def inner_loops(loop: CppLoop) -> tuple[CppLoop, ...]:
    """Return the loops directly in a loop's body."""
    return tuple(each for each in loop.body if isinstance(each, CppLoop))
