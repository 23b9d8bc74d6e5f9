"""What is recognised of C++ text: functions, counted loops, and the statements in them.

`kernelgym_train.mcgs.cpp.loops` reads them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.polynomial import Polynomial
from kernelgym_train.mcgs.cpp.scope import NARROW, CppArray
from kernelgym_train.mcgs.cpp.syntax import identifiers, text_of


@dataclass(frozen=True, slots=True)
class UnreadLoop:
    """A loop that is not recognised."""

    line: int
    """Line of the statement that is not understood, from 1, in the C++ text."""
    why: str
    """What is not understood, such as ```if` in a loop``."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.why} is not understood"


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


def walk_loops(loops: tuple[CppStatement, ...]) -> Iterator[CppLoop]:
    """Yield loops and all loops in them, outer ones first."""
    for loop in loops:
        if isinstance(loop, CppLoop):
            yield loop
            yield from walk_loops(loop.body)


def inner_loops(loop: CppLoop) -> tuple[CppLoop, ...]:
    """Return the loops directly in a loop's body."""
    return tuple(each for each in loop.body if isinstance(each, CppLoop))
