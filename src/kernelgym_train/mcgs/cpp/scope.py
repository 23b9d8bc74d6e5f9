"""Declarations of a C++ function outside of its loops: numbers, and pointers to tensors.

Pure.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.syntax import children, identifiers, text_of, walk

FLOATS = ("float", "double")
WHOLE = ("int", "long", "int64_t", "int32_t", "size_t", "std::size_t", "std::int64_t")
NARROW = ("int", "int32_t")
"""Whole numbers of 32 bits, which cut off the upper half of a longer number."""
_ALLOCATES = re.compile(r"(torch|at)::(empty|zeros|ones|full|rand|randn)(_like)?$")
_POINTER = re.compile(r"(\w+)\s*\.\s*data_ptr<(\w+)>\(\)")
_SIZE = re.compile(r"\w+\s*\.\s*(size\(\d+\)|numel\(\))")
_MAKES = re.compile(r"(\w+\.contiguous\(\)$|(torch|at)::(empty|zeros|ones|full)(_like)?\()")
_TENSOR = re.compile(r"(torch|at)::Tensor")
_CAST = re.compile(rf"static_cast<({'|'.join((*WHOLE, *FLOATS))})>\([^()]*\)$")
_READS = r"data_ptr|size|sizes|numel|options|dim|stride"


@dataclass(frozen=True, slots=True)
class CppArray:
    """A pointer to a tensor's elements."""

    name: str
    element: str
    """Type of the elements, such as ``float``."""
    output: bool
    """Whether the function allocates the tensor; all other arrays are only read."""
    tensor: str = ""
    """Name of the tensor."""


def constants(root: Node) -> dict[str, str]:
    """Return the types by name of the constants that the text declares outside of functions."""
    found: dict[str, str] = {}
    for node in children(root):
        if node.type == "namespace_definition":
            body = node.child_by_field_name("body")
            found |= {} if body is None else constants(body)
        words = {text_of(child) for child in node.children if child.type == "type_qualifier"}
        kind = text_of(node.child_by_field_name("type"))
        if node.type == "declaration" and words & {"const", "constexpr"}:
            for part in children(node):
                target = part.child_by_field_name("declarator")
                if part.type == "init_declarator" and target is not None:
                    if target.type == "identifier" and kind in (*WHOLE, *FLOATS):
                        found[text_of(target)] = kind
    return found


def declared_names(root: Node) -> Counter[str]:
    """Return how often the text declares each name, wherever that is.

    Functions, variables, fields, parameters, types and names that are taken from other namespaces
    are counted; names from ``std`` keep their meaning.
    """
    found: Counter[str] = Counter()
    for node in walk(root):
        named: list[Node] = []
        if node.type == "using_declaration":
            named = [] if "std::" in text_of(node) else node.named_children[-1:]
        elif node.type.endswith(("_specifier", "_definition", "enumerator", "alias_declaration")):
            named = node.children_by_field_name("name")
        named += node.children_by_field_name("declarator")
        if node.type in ("reference_declarator", "structured_binding_declarator"):
            named += node.named_children
        for each in named:
            if each.type.endswith("identifier"):
                found[text_of(each).rpartition("::")[2]] += 1
    return found


class CppScope:
    """What a function declares outside of its loops."""

    def __init__(
        self, declarator: Node, body: Node, own: frozenset[str], constants: Mapping[str, str]
    ) -> None:
        self.body = body
        self.own = own
        """Names that the text declares itself: a function of such a name may do anything."""
        self.constants = constants
        """Types by name of the constants that the text declares outside of functions."""
        self.arrays: dict[str, CppArray] = {}
        self.buffers: dict[str, CppArray] = {}
        """Vectors that the bodies of loops declare, by name; they exist only in these bodies."""
        self.types: dict[str, str] = {}
        self.unread: dict[tuple[int, int], str] = {}
        """What is not understood by its place (row and column from 0)."""
        self._tensor_of: dict[str, str] = {}
        for node in walk(declarator):
            if node.type == "parameter_declaration":
                named, kind = (node.child_by_field_name(n) for n in ("declarator", "type"))
                if named is not None and named.type == "identifier":
                    if text_of(kind) in (*WHOLE, *FLOATS):
                        self.types[text_of(named)] = text_of(kind)
        self._tensors = {
            text_of(inner)
            for node in (*walk(declarator), *walk(body))
            if _TENSOR.fullmatch(text_of(node.child_by_field_name("type")))
            for inner in walk(node)
            if inner.type == "identifier" and inner.parent is not None
            if inner.parent.type in ("parameter_declaration", "reference_declarator", "declaration")
            or inner == inner.parent.child_by_field_name("declarator")
        }
        self._tensors |= {
            text_of(node.child_by_field_name("declarator"))
            for node in walk(body)
            if node.type == "init_declarator"
            and _MAKES.match(text_of(node.child_by_field_name("value")))
        }
        """Names of tensors: declared as such, contiguous copies, and tensors made here."""
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
                if target.type == "identifier" and not _POINTER.fullmatch(text_of(value)):
                    if text_of(given) in (*WHOLE, *FLOATS):
                        self.types[text_of(target)] = text_of(given)
                    elif text_of(given) == "auto" and _SIZE.fullmatch(text_of(value)):
                        self.types[text_of(target)] = "int64_t"
                    elif text_of(given) == "auto" and (cast := _CAST.match(text_of(value))):
                        self.types[text_of(target)] = cast[1]
                    elif value.type == "call_expression":
                        called = text_of(value.child_by_field_name("function"))
                        tensors[text_of(target)] = bool(_ALLOCATES.match(called))
                else:
                    while target is not None and target.type == "pointer_declarator":
                        target = target.child_by_field_name("declarator")
                    constant = any(text_of(each) == "const" for each in node.children)
                    self._add_array(text_of(target), text_of(given), text_of(value), constant)
        for name, tensor in self._tensor_of.items():
            output = self.arrays[name].output and self._only_returned(tensor, tensors)
            self.arrays[name] = dataclasses.replace(self.arrays[name], output=output)

    def _add_array(self, name: str, given: str, value: str, constant: bool) -> None:
        found = _POINTER.fullmatch(value)
        if not found or name in self.written or name in self.twice:
            return
        element = found[2]
        if given in (element, "auto") and element in (*FLOATS, *WHOLE):
            self.arrays[name] = CppArray(name, element, not constant, found[1])
            self._tensor_of[name] = found[1]

    def _only_returned(self, tensor: str, tensors: dict[str, bool]) -> bool:
        """Return True if a tensor is allocated by the function and has one pointer."""
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

    def is_size(self, node: Node) -> bool:
        """Return True for ``tensor.size(0)`` or ``tensor.numel()``, which no loop changes."""
        found = _SIZE.fullmatch(text_of(node))
        return found is not None and text_of(node).partition(".")[0].strip() in self._tensors

    def refuse(self, node: Node, why: str) -> None:
        """Record what of a loop is not understood; the first reason at a place stays."""
        self.unread.setdefault((node.start_point.row, node.start_point.column), why)

    def fixed(self, name: str) -> bool:
        """Return True if a whole number never changes."""
        if name in self.written or name in self.twice:
            return False
        return self.type_of(name, {}) in WHOLE

    def type_of(self, name: str, known: Mapping[str, str]) -> str | None:
        """Return a number's type; None if the name may mean something else.

        Args:
            name: The name.
            known: Types of numbers that the loops around its use declare.
        """
        return known.get(name, self.types.get(name, self.constants.get(name)))


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
