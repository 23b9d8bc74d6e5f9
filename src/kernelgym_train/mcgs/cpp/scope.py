"""What a C++ text and one of its functions declare: numbers, memory, and functions without effects.

`CppText` holds what the whole text declares, `CppScope` what a function declares outside of its
loops. Memory is an output, so that its accesses prove something, if no other name can lead to it.
Pure.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.forms import FLOATS, WHOLE, CppArray, CppElement, CppPlace, CppSummary
from kernelgym_train.mcgs.cpp.polynomial import Polynomial
from kernelgym_train.mcgs.cpp.syntax import (
    arguments_of,
    children,
    declared_name,
    identifiers,
    plain_text,
    text_of,
    walk,
)

NUMBERS = (
    *(*FLOATS, *WHOLE, "bool", "unsigned", "unsigned int", "char", "long double"),
    *("uint8_t", "uint16_t", "uint32_t", "uint64_t", "int8_t", "int16_t"),
    *(f"{space}::{kind}" for space in ("at", "c10") for kind in ("Half", "BFloat16")),
)
Known = str | CppPlace
"""Type of a number, or the memory that a pointer leads to."""
_SIZES = ("size", "numel", "dim", "stride")
_ASKS = (*_SIZES, "sizes", "options", "is_contiguous", "scalar_type", "dtype", "device", "defined")
POINTERS = ("data_ptr", "mutable_data_ptr", "const_data_ptr", "data", "begin", "end", "get")
ACCESSORS = ("accessor", "packed_accessor32", "packed_accessor64")
READS_RANGE = ("max_element", "min_element", "accumulate", "inner_product")
WRITES_RANGE = {"fill": 0, "fill_n": 0, "copy": 2, "copy_n": 2, "memcpy": 0, "memset": 0}
"""Functions that write memory, with the position of the argument that points to it."""
_ALLOCATES = re.compile(
    r"(torch|at)::(empty|zeros|ones|full|rand|randn)(_like)?$"
    r"|(torch|at)::(mm|bmm|addmm)$|\w+\.(new_(empty|zeros|ones|full)|clone)$"
)
_MAKES = re.compile(r"\w+\.contiguous\(\)$|(torch|at)::(empty|zeros|ones|full)(_like)?\(")
_TENSOR = re.compile(r"(torch|at)::Tensor")
_VECTOR = re.compile(r"std::(?:vector<([\w:]+)>|array<([\w:]+),.*>)")


@dataclass(slots=True)
class CppText:
    """What a C++ text declares outside of functions."""

    own: Counter[str]
    """Number of times that the text declares each name. A called function that has one of these
    names may have any effect."""
    constants: dict[str, Known]
    values: dict[str, int]
    """Values of constants that are whole numbers and written as such, by name."""
    types: frozenset[str]
    """Names of types of numbers: those of the language, and parameters of templates."""
    enumerators: set[str]
    fields: dict[str, str]
    """Types of the numbers in the text's structures and classes, by name."""
    pure: set[str] = field(default_factory=set)
    """Functions of the text whose result depends on their arguments alone, without effects."""
    scopes: dict[str, CppScope] = field(default_factory=dict)
    """Scopes of functions whose names are declared once, by name."""
    summaries: dict[str, CppSummary] = field(default_factory=dict)
    """Effects on memory of functions that recognised loops may call, by name."""
    calls: dict[int, list[tuple[CppScope, Node] | None]] = field(default_factory=dict)
    """Calls of a function, by the id of its scope; None stands for another use of the function's
    name."""


def vector_of(kind: str) -> str | None:
    """Return the type of the elements of ``std::vector`` or ``std::array``; None for others."""
    found = _VECTOR.fullmatch("".join(kind.split()))
    return (found[1] or found[2]) if found else None


def declared_names(root: Node) -> Counter[str]:
    """Return how often a C++ text declares each name, wherever that is.

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
    """Declarations of a C++ function outside of its loops."""

    def __init__(self, declarator: Node, body: Node, text: CppText) -> None:
        self.body, self.text = body, text
        self.names: dict[str, Known] = {}
        """Scalar and pointer variables that the function's body declares outside of all loops."""
        self.values = {name: value for name, value in text.values.items() if text.own[name] < 2}
        self.memory: dict[str, str] = {}
        """Types of the elements that were accessed, by the memory's name."""
        self.elements: dict[Node, CppElement] = {}
        self.unread: dict[tuple[int, int], str] = {}
        """Reason why a statement is not understood, by its place (row and column from 0)."""
        self.written = _written(body)
        """Names that are assigned, counted up, or have their address taken."""
        self._stepped = self.written - _written(body, steps=False)
        declared = [
            text_of(declared_name(node)) for node in walk(body) if node.type == "init_declarator"
        ]
        self.twice = {name for name, count in Counter(declared).items() if count > 1}
        self.parameters = [
            text_of(declared_name(node)) if _TENSOR.search(text_of(node)) else ""
            for node in walk(declarator)
            if node.type == "parameter_declaration"
        ]
        self.tensors = {
            text_of(declared_name(each))
            for node in (*walk(declarator), *walk(body))
            if _TENSOR.fullmatch(text_of(node.child_by_field_name("type")))
            for each in node.children_by_field_name("declarator")
        } | {
            text_of(node.child_by_field_name("declarator"))
            for node in walk(body)
            if node.type == "init_declarator"
            and _MAKES.match(text_of(node.child_by_field_name("value")))
        }
        """Names of tensors: declared as such, contiguous copies, and tensors made here."""
        self._made = {
            text_of(declared_name(node))
            for node in walk(body)
            if node.type == "init_declarator" and _is_made(node)
        }
        self._values = {
            text_of(declared_name(node)): value
            for node in walk(body)
            if node.type == "init_declarator"
            and (value := node.child_by_field_name("value")) is not None
        }
        self._uses: dict[str, list[Node]] = {}
        for node in walk(body):
            if node.type == "identifier":
                self._uses.setdefault(text_of(node), []).append(node)
        self.locals: set[str] = set()
        """Arrays and vectors that the function declares anywhere."""
        self.pointers: dict[str, int] = {}
        """Parameters that are pointers, with their places among all parameters."""
        self._confined: dict[str, bool] = {}
        self._own: dict[str, bool] = {}

    def arrays(self) -> dict[str, CppArray]:
        """Return the memory that recognised loops access, by name."""
        tensors = self.tensors | self._made
        return {
            name: CppArray(name, element, self.is_own(name), name in tensors)
            for name, element in self.memory.items()
        }

    def is_own(self, name: str) -> bool:
        """Return True if no other name in the text aliases the memory of a name.

        True for tensors, arrays and vectors that the function makes, for tensors that it is given
        and writes (a destination that the caller passes), and for pointers whose callers all pass
        such memory.
        """
        if name not in self._own:
            self._own[name] = False  # for a function that calls itself
            self._own[name] = self._is_own(name)
        return self._own[name]

    def _is_own(self, name: str) -> bool:
        if name in self.written or not self.is_confined(name):
            return False
        if name in self.pointers:
            calls = self.text.calls[id(self)]
            return bool(calls) and all(
                each is not None and each[0].passes_own(each[1], name, self) for each in calls
            )
        if name in self.locals:
            return True
        return (name in self._made or name in self.parameters) and name not in self.twice

    def passes_own(self, call: Node, name: str, callee: CppScope) -> bool:
        """Return True if a call's pointer argument leads to memory without aliases."""
        parts = arguments_of(call)
        if len(parts) <= max(callee.pointers.values()):
            return False
        bases = {each: self._base(parts[at]) for each, at in callee.pointers.items()}
        base = bases.pop(name)
        if base is None or None in bases.values() or base in bases.values():
            return False
        return self.is_own(base)

    def _base(self, node: Node | None) -> str | None:
        """Return the name of the memory that a pointer's value leads to; None if unknown."""
        for _ in range(20):
            if node is None:
                return None
            if node.type == "identifier":
                place = self.names.get(text_of(node))
                if isinstance(place, CppPlace):
                    return place.array
                if text_of(node) in self.twice | self.written:
                    return None
                node = self._values.get(text_of(node))
            elif node.type in ("binary_expression", "parenthesized_expression"):
                node = node.child_by_field_name("left") or children(node)[0]
            else:
                owner = owner_of(node, POINTERS)
                return None if owner is None else text_of(owner)
        return None

    def is_confined(self, name: str) -> bool:
        """Return True if the analysis knows every use of a tensor, a vector or a pointer.

        A tensor is asked for sizes and pointers, and returned. A pointer is never passed to a
        function that may keep it, or that the text does not show.
        """
        if name not in self._confined:
            self._confined[name] = True  # where a use leads back to the name, others decide
            self._confined[name] = all(map(self._is_followed, self._uses.get(name, ())))
        return self._confined[name]

    def _is_followed(self, node: Node) -> bool:
        name, parent = text_of(node), node.parent
        if parent is None or parent.type in ("lambda_capture_specifier", "for_range_loop"):
            return parent is not None
        if node == parent.child_by_field_name("declarator"):
            return parent.type != "reference_declarator"
        place = self.names.get(name)
        is_tensor = name in self.tensors or name in self._made or name in self.parameters
        if self._is_returned(node):
            return True
        if parent.type == "field_expression":
            method = text_of(parent.child_by_field_name("field"))
            if _word(method) not in (*POINTERS, *ACCESSORS):
                return method in _ASKS or name in self.locals
            node, is_tensor = parent.parent or parent, False
        dims = place.dims if isinstance(place, CppPlace) else 1
        return not is_tensor and self._leads_on(node, dims)

    def _is_returned(self, node: Node) -> bool:
        """Return True if a value is returned, and passed to no function of the text on the way."""
        above = list(_parents(node))
        calls = [each for each in above if each.type == "call_expression"]
        returned = any(each.type == "return_statement" for each in above)
        return returned and not any(called_name(each) in self.text.own for each in calls)

    def _leads_on(self, node: Node, dims: int) -> bool:
        """Return True if the analysis knows every use of a pointer's value."""
        while (parent := node.parent) is not None:
            if parent.type == "subscript_expression" and node == parent.children[0]:
                node, dims = parent, dims - 1
                if not dims:
                    return True
            elif parent.type == "pointer_expression":
                return text_of(parent).startswith("*")
            elif parent.type == "init_declarator":
                name = declared_name(parent)
                is_plain = not any(each.type == "reference_declarator" for each in walk(parent))
                return is_plain and name is not None and self.is_confined(text_of(name))
            elif parent.type == "assignment_expression":
                return node == parent.child_by_field_name("left")
            elif parent.type == "argument_list":
                called = parent.parent
                word = "" if called is None else called_name(called)
                if called is None or word in READS_RANGE or word in WRITES_RANGE:
                    return called is not None
                if word != "static_cast":
                    return self._is_kept_in_sight(word, parent, node)
                node = called
            elif parent.type.endswith("expression"):
                node = parent
            else:
                return True
        return False

    def _is_kept_in_sight(self, called: str, arguments: Node, given: Node) -> bool:
        """Return True if a pointer is passed to a function whose uses of it are known."""
        callee = self.text.scopes.get(called)
        at = children(arguments).index(given)
        found = [name for name, place in callee.pointers.items() if place == at] if callee else []
        return callee is not None and bool(found) and callee.is_confined(found[0])

    def settled(self, name: str, place: CppPlace) -> CppPlace | None:
        """Return the memory that a pointer leads to, in loops that do not move the pointer.

        None for a pointer that may lead to other memory later.
        """
        if name not in self.written:
            return place
        if name not in self._stepped:
            return None
        return dataclasses.replace(place, offset=Polynomial.name(name))

    def is_size(self, node: Node) -> bool:
        """Return True for ``tensor.size(0)``, ``tensor.numel()`` and the like."""
        called = node.child_by_field_name("function") if node.type == "call_expression" else None
        if called is None or called.type != "field_expression":
            return False
        owner, method = (called.child_by_field_name(name) for name in ("argument", "field"))
        asked = plain_text(node)[len(plain_text(called)) :]
        known = text_of(method) in _SIZES and text_of(method) not in self.text.own
        return (
            known
            and owner is not None
            and owner.type == "identifier"
            and re.fullmatch(
                r"\(-?\d+\)" if text_of(method) in ("size", "stride") else r"\(\)", asked
            )
            is not None
        )

    def refuse(self, node: Node, why: str) -> None:
        """Record why a loop is not understood; the first reason at a place stays."""
        self.unread.setdefault((node.start_point.row, node.start_point.column), why)

    def fixed(self, name: str, known: Mapping[str, Known]) -> bool:
        """Return True if a C++ name is a whole number that never changes."""
        if name in self.written or (name in self.twice and name not in known):
            return False
        return self.lookup(name, known) in WHOLE

    def lookup(self, name: str, known: Mapping[str, Known]) -> Known | None:
        """Return the declaration that a name means; None if it may mean another.

        Args:
            name: The name.
            known: Names that the loops and blocks around its use declare.
        """
        return known.get(name, self.names.get(name, self.text.constants.get(name)))


def owner_of(node: Node, methods: tuple[str, ...]) -> Node | None:
    """Return the object whose method a call expression calls, if it is one of these methods."""
    called = node.child_by_field_name("function") if node.type == "call_expression" else None
    if called is None or called.type != "field_expression":
        return None
    owner, method = (called.child_by_field_name(name) for name in ("argument", "field"))
    named = owner is not None and owner.type == "identifier"
    return owner if named and _word(text_of(method)) in methods else None


def _word(text: str) -> str:
    """Return a C++ function's name without namespaces and template arguments."""
    return text.partition("<")[0].rpartition("::")[2].removeprefix("template").strip()


def called_name(call: Node) -> str:
    """Return the name of a called C++ function, without namespaces and template arguments."""
    return _word(text_of(call.child_by_field_name("function")))


def calls_of(
    name: str, root: Node, scopes: Mapping[Node, CppScope]
) -> Iterator[tuple[CppScope, Node] | None]:
    """Yield each use of a function's name outside of its definition; None for a use without a call.

    Args:
        name: The function's name.
        root: Root of the text.
        scopes: Scopes by the function's definition.
    """
    for node in walk(root):
        if node.type != "identifier" or text_of(node) != name or node.parent is None:
            continue
        if node.parent.type == "function_declarator":
            continue
        call: Node | None = node.parent
        if call is not None and call.type == "template_function":
            call = call.parent
        above = node
        while above.parent is not None and above not in scopes:
            above = above.parent
        if call is None or call.type != "call_expression" or above not in scopes:
            yield None
        elif called_name(call) == name:
            yield scopes[above], call
        else:
            yield None


def _is_made(declarator: Node) -> bool:
    """Return True if a name in C++ is declared as a newly created tensor."""
    target, value = (declarator.child_by_field_name(name) for name in ("declarator", "value"))
    if target is None or target.type != "identifier" or value is None:
        return False
    called = value.child_by_field_name("function")
    return value.type == "call_expression" and bool(_ALLOCATES.match(plain_text(called)))


def _parents(node: Node) -> Iterator[Node]:
    parent = node.parent
    while parent is not None and parent.type not in ("compound_statement", "declaration"):
        yield parent
        parent = parent.parent


def _written(body: Node, *, steps: bool = True) -> set[str]:
    """Return the names that C++ code assigns, counts up, or takes the address of.

    A loop's counter that only the loop's head counts up is left out.

    Args:
        body: Body of the function.
        steps: Whether names count that go up or down by a number.
    """
    names: set[str] = set()
    for node in walk(body):
        if node.type == "reference_declarator":
            around = node.parent or node
            over = around.child_by_field_name("right")  # of a loop over a range
            names |= identifiers(node) | identifiers(over or around)
            continue
        is_address = node.type == "pointer_expression" and text_of(node).startswith("&")
        if not is_address and node.type not in ("assignment_expression", "update_expression"):
            continue
        target = node.child_by_field_name("left") or node.child_by_field_name("argument")
        operator = text_of(node.child_by_field_name("operator"))
        if not steps and operator in ("++", "--", "+=", "-="):
            continue
        loop = node.parent
        first = None if loop is None else loop.child_by_field_name("initializer")
        if first is not None and loop is not None and node == loop.child_by_field_name("update"):
            if first.type == "declaration" and text_of(target) in identifiers(first):
                continue
        names |= identifiers(target) if target and target.type.startswith("paren") else set()
        names.add(text_of(target))
    return names
