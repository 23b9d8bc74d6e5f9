"""What a C++ function declares outside of its loops.

Numbers, and pointers to tensors. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.syntax import children, identifiers, text_of, walk

__all__ = ["FLOATS", "WHOLE", "Array", "Scope", "constants"]

FLOATS = ("float", "double")
WHOLE = ("int", "long", "int64_t", "int32_t", "size_t", "std::size_t", "std::int64_t")
_ALLOCATES = re.compile(r"(torch|at)::(empty|zeros|ones|full|rand|randn)(_like)?$")
_READS = r"data_ptr|size|sizes|numel|options|dim|stride"


@dataclass(frozen=True, slots=True)
class Array:
    """A pointer to a tensor's elements."""

    name: str
    element: str
    """``float``, ``double``, ..."""
    output: bool
    """Whether the function allocates it; all others are only read."""


def constants(root: Node) -> set[str]:
    """Return whole numbers that the text declares constant, outside of functions."""
    found: set[str] = set()
    for node in children(root):
        words = {text_of(child) for child in node.children if child.type == "type_qualifier"}
        if node.type == "declaration" and words & {"const", "constexpr"}:
            if text_of(node.child_by_field_name("type")) in WHOLE:
                for part in children(node):
                    if part.type == "init_declarator":
                        found.add(text_of(part.child_by_field_name("declarator")))
    return found


class Scope:
    """What a function declares outside of its loops."""

    def __init__(
        self, declarator: Node, body: Node, own: frozenset[str], constants: frozenset[str]
    ) -> None:
        self.body = body
        self.own = own
        """Functions that the text defines: they may do anything."""
        self.constants = constants
        self.arrays: dict[str, Array] = {}
        self.types: dict[str, str] = {}
        for node in walk(declarator):
            if node.type == "parameter_declaration":
                named, kind = (node.child_by_field_name(n) for n in ("declarator", "type"))
                if named is not None and named.type == "identifier":
                    if text_of(kind) in (*WHOLE, *FLOATS):
                        self.types[text_of(named)] = text_of(kind)
        self.written = _written(body)
        tensors: dict[str, bool] = {}
        declared: list[str] = []
        for node in walk(body):
            if node.type == "init_declarator":
                inner = node.child_by_field_name("declarator")
                while inner is not None and inner.type != "identifier":
                    inner = inner.child_by_field_name("declarator")
                declared.append(text_of(inner))
        self.twice = {name for name in declared if declared.count(name) > 1}
        for node in children(body):
            if node.type != "declaration":
                continue
            given = node.child_by_field_name("type")
            for part in children(node):
                if part.type != "init_declarator":
                    continue
                target, value = (part.child_by_field_name(n) for n in ("declarator", "value"))
                if target is None or value is None:
                    continue
                if target.type == "identifier":
                    if text_of(given) in (*WHOLE, *FLOATS):
                        self.types[text_of(target)] = text_of(given)
                    elif value.type == "call_expression":
                        called = text_of(value.child_by_field_name("function"))
                        tensors[text_of(target)] = bool(_ALLOCATES.match(called))
                elif target.type == "pointer_declarator":
                    self._add_array(text_of(target.child_by_field_name("declarator")), given, value)
        for name, array in list(self.arrays.items()):
            if array.output and not self._only_returned(name, tensors):
                del self.arrays[name]

    def _add_array(self, name: str, given: Node | None, value: Node) -> None:
        found = re.fullmatch(r"(\w+)\s*\.\s*(?:mutable_|const_)?data_ptr<\w+>\(\)", text_of(value))
        element = text_of(given)
        if not found or name in self.written or name in self.twice:
            return
        if element in (*FLOATS, *WHOLE):
            declaration = value.parent.parent if value.parent is not None else None
            constant = declaration is not None and any(
                text_of(each) == "const" for each in declaration.children
            )
            self.arrays[name] = Array(name, element, not constant)

    def _only_returned(self, name: str, tensors: dict[str, bool]) -> bool:
        """Return True if a tensor is new, with one pointer."""
        (tensor,) = (
            match[1]
            for node in walk(self.body)
            if node.type == "init_declarator"
            and text_of(node.child_by_field_name("declarator")).lstrip("* ") == name
            and (match := re.match(r"(\w+)", text_of(node.child_by_field_name("value"))))
        )
        uses = [
            node
            for node in walk(self.body)
            if node.type == "identifier" and text_of(node) == tensor
        ]
        outside = [
            node
            for node in uses
            if not re.fullmatch(rf"{tensor}\.({_READS})(<\w+>)?", text_of(node.parent))
            and not any(parent.type == "return_statement" for parent in _parents(node))
        ]
        pointers = [
            node
            for node in uses
            if node.parent is not None
            and node.parent.type == "field_expression"
            and "data_ptr" in text_of(node.parent)
        ]
        return tensors.get(tensor, False) and len(pointers) == 1 and len(outside) == 1

    def fixed(self, name: str) -> bool:
        """Return True if a whole number never changes."""
        if name in self.written or name in self.twice:
            return False
        return self.types.get(name) in WHOLE or name in self.constants


def _parents(node: Node) -> Iterator[Node]:
    parent = node.parent
    while parent is not None and parent.type not in ("compound_statement", "declaration"):
        yield parent
        parent = parent.parent


def _written(body: Node) -> set[str]:
    """Return names that are assigned, counted up, or have their address taken."""
    names: set[str] = set()
    for node in walk(body):
        if node.type == "assignment_expression":
            names.add(text_of(node.child_by_field_name("left")))
        elif node.type == "update_expression":
            names.add(text_of(node.child_by_field_name("argument")))
        elif node.type == "pointer_expression" and text_of(node).startswith("&"):
            names.add(text_of(node.child_by_field_name("argument")))
        elif node.type == "reference_declarator":
            names |= identifiers(node.parent or node)
    return names
