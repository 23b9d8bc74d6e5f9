"""`Walk`: finds out what C++ expressions and statements read, write and declare.

Contract: an expression or a statement is understood if it reads and writes nothing but numbers and
elements of known memory, calls nothing but known functions without other effects, and leaves by
its end. `NotRead` names the first part that is not. Subscripts may be anything that is understood;
those that are polynomials of unchanging whole numbers are recorded as such. Pure.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.forms import (
    WHOLE,
    ZERO,
    CppElement,
    CppPlace,
    CppSummary,
)
from kernelgym_train.mcgs.cpp.pointers import pointer_of
from kernelgym_train.mcgs.cpp.polynomial import Polynomial
from kernelgym_train.mcgs.cpp.proofs import carried
from kernelgym_train.mcgs.cpp.scope import (
    READS_RANGE,
    WRITES_RANGE,
    CppScope,
    Known,
    called_name,
    owner_of,
    vector_of,
)
from kernelgym_train.mcgs.cpp.summaries import elements_of
from kernelgym_train.mcgs.cpp.syntax import (
    arguments_of,
    children,
    declared_name,
    index_node,
    plain_text,
    polynomial_of,
    sides_of,
    text_of,
    walk,
)
from kernelgym_train.mcgs.cpp.whole import atom_of, changing, kind_of, polynomial

_PURE_CALLS = frozenset(
    f"{name}{suffix}"
    for name in (
        *("exp", "log", "sqrt", "abs", "fabs", "tanh", "sin", "cos", "pow", "max", "min", "erf"),
        *("floor", "ceil", "exp2", "log2", "log10", "fmax", "fmin", "log1p", "expm1", "clamp"),
        *("fma", "fmod", "round", "trunc", "hypot", "cbrt", "atan", "tan", "sinh", "cosh", "erfc"),
        *("isnan", "isinf", "isfinite", "signbit", "copysign", "rint", "nearbyint", "atan2"),
    )
    for suffix in ("", "f")
)
"""Names of C++ functions whose value depends on their arguments alone, which recognised loops may
call."""
_LIBRARY_NUMBERS = frozenset(
    ("INFINITY", "NAN", "FLT_MAX", "FLT_MIN", "DBL_MAX", "DBL_MIN", "M_PI", "FLT_EPSILON")
)
_LIMIT = re.compile(r"std::numeric_limits<\w+>::(infinity|lowest|max|min|epsilon|quiet_NaN)")
_CHECKS = re.compile(r"TORCH_(INTERNAL_ASSERT|CHECK)(_[A-Z_]+)?|AT_ASSERT(M)?|assert")
LEAVES = "throw"
"""Marker among a statement's assigned names: an exception may leave the loop at the statement."""
_PARTS = (
    *("parenthesized_expression", "conditional_expression", "comma_expression"),
    *("unary_expression", "binary_expression"),
)
_LITERALS = ("number_literal", "char_literal", "true", "false", "sizeof_expression")
_LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
_LONGEST = 60  # characters of a part in a reason


class NotRead(Exception):
    """Raised for a part of a loop that the parser does not understand; no move edits the loop."""

    def __init__(self, node: Node, why: str = "") -> None:
        text = " ".join(text_of(node).split())
        super().__init__(why or f"`{text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'}`")
        self.node = node


class Walk:
    """Reads expressions and statements of one loop's body.

    Args:
        scope: Declarations of the function outside of its loops.
        known: Names that the loops and blocks around the body declare.
        may_return: Whether a statement may return: it stands in a function without effects.
    """

    def __init__(
        self, scope: CppScope, known: Mapping[str, Known], *, may_return: bool = False
    ) -> None:
        self.known: dict[str, Known] = dict(known)
        self.elements: list[CppElement] = []
        self.assigned: set[str] = set()
        """Numbers that were assigned."""
        self.declared: dict[str, Known] = {}
        """Names that were declared, those in nested blocks included."""
        self._scope, self._returns, self._loops = scope, may_return, 0

    def value(self, node: Node) -> None:
        """Read a C++ expression whose value is a number; record the elements that it accesses."""
        kind = node.type
        if kind in _LITERALS:
            return
        if kind == "identifier":
            self._number(node)
        elif kind in ("subscript_expression", "pointer_expression"):
            if not self._range_value(node):
                self._element(node, writes=False)
        elif kind == "assignment_expression":
            if (sides := sides_of(node)) is None:
                raise NotRead(node)
            self._target(sides[0])
            self._initial(sides[2])
        elif kind == "update_expression":
            self._target(node.child_by_field_name("argument") or node)
        elif kind == "call_expression":
            self._call(node)
        elif kind == "cast_expression":
            given = node.child_by_field_name("value")
            if plain_text(node.child_by_field_name("type")) not in self._scope.text.types:
                raise NotRead(node)
            self.value(given or node)
        elif kind == "qualified_identifier" and text_of(node).rpartition("::")[2] in (
            self._scope.text.enumerators
        ):
            return
        elif kind == "field_expression" and self._is_field(node):
            return
        elif kind in _PARTS:
            parts = children(node)
            is_null = any(each.type == "null" for each in parts)
            for each in parts:
                if not is_null:
                    self.value(each)
                elif each.type != "null" and self.place(each) is None:
                    raise NotRead(node)
        else:
            raise NotRead(node)

    def place(self, node: Node) -> CppPlace | None:
        """Return the memory that a pointer expression leads to; None if it is not a known pointer.

        Raises:
            NotRead: If a part of it is not understood.
        """
        if node.type == "identifier":
            found = self._scope.lookup(text_of(node), self.known)
            return found if isinstance(found, CppPlace) else None
        if node.type == "parenthesized_expression":
            return self.place(children(node)[0])
        if node.type == "conditional_expression":
            _, one, other = children(node)
            return self.place(one) if other.type == "null" else None
        if node.type == "binary_expression":
            sides = sides_of(node)
            if sides is None or sides[1] not in ("+", "-"):
                return None
            found = self.place(sides[0])
            if found is None or found.dims != 1 or found.strided:
                return None
            return self._moved(found, sides[2], sides[1])
        if node.type == "pointer_expression" and text_of(node).startswith("&"):
            element = node.child_by_field_name("argument")
            index = None if element is None else index_node(element)
            argument = None if element is None else element.child_by_field_name("argument")
            found = None if argument is None else self.place(argument)
            if found is None or index is None or found.dims != 1 or found.strided:
                return None
            return self._moved(found, index, "+")
        if node.type == "call_expression":
            return pointer_of(node, self._scope, self.known)
        return None

    def _moved(self, place: CppPlace, by: Node, sign: str) -> CppPlace:
        self.value(by)
        step, offset = polynomial(by, self._scope, self.known), None
        if place.offset is not None and step is not None:
            offset = place.offset + step if sign == "+" else place.offset - step
        return CppPlace(place.array, place.element, offset)

    def bound(self, node: Node) -> Polynomial:
        """Return a loop bound whose evaluation has no effects and which the loop never changes."""
        before = len(self.elements), set(self.assigned)
        self.value(node)
        changed = changing(node, self._scope, self.known)
        if changed is not None:
            raise NotRead(node, f"bound `{changed}`, which may change or is not a known number")
        found = polynomial_of(node, atom_of(self._scope))
        if found is None or before != (len(self.elements), self.assigned):
            raise NotRead(node, f"bound `{text_of(node)}`")
        return found

    def _number(self, node: Node) -> None:
        name = text_of(node)
        found = self._scope.lookup(name, self.known)
        if found is None and name in _LIBRARY_NUMBERS and name not in self._scope.text.own:
            return
        if found is None and name in self._scope.parameters:
            return  # an optional tensor, asked whether it is there
        if not isinstance(found, str) or found not in self._scope.text.types:
            raise NotRead(node, f"`{name}`, which is not a known number,")

    def _is_field(self, node: Node) -> bool:
        """Return True for a number in a structure that the C++ text declares."""
        owner, named = (node.child_by_field_name(name) for name in ("argument", "field"))
        is_plain = owner is not None and owner.type == "identifier"
        return is_plain and text_of(named) in self._scope.text.fields

    def _target(self, node: Node) -> None:
        """Record what an assignment's left side changes."""
        if node.type == "parenthesized_expression":
            self._target(children(node)[0])
        elif node.type == "field_expression" and self._is_field(node):
            self.assigned.add(text_of(children(node)[0]))
        elif node.type == "identifier":
            self._number(node)
            self.assigned.add(text_of(node))
        else:
            self._element(node, writes=True)

    def _element(self, node: Node, *, writes: bool) -> None:
        """Record an access to one element of an array."""
        place, given = None, list[Node]()
        at: Node | None = node
        if node.type == "pointer_expression" and text_of(node).startswith("*"):
            at = node.child_by_field_name("argument")
            place = None if at is None else self.place(at)
            if place is not None and place.dims != 1:
                raise NotRead(node)
        while place is None and at is not None and at.type == "subscript_expression":
            index, at = index_node(at), at.child_by_field_name("argument")
            if index is None or at is None:
                break
            given.insert(0, index)
            place = self.place(at)
        if place is None or len(given) not in (place.dims, 0):
            raise NotRead(node)
        for each in given:
            self.value(each)
        element = self._scope.memory.setdefault(place.array, place.element)
        subscripts = tuple(polynomial(each, self._scope, self.known) for each in given) or (ZERO,)
        if place.strided:
            subscripts = (ZERO, *subscripts)
        elif place.dims == 1:
            first = subscripts[0]
            both = None if place.offset is None or first is None else place.offset + first
            subscripts = (both,)
        if element != place.element:
            subscripts = (None,)  # the same memory, counted in elements of another type
        self._record(CppElement(node, place.array, subscripts, writes))

    def _range(self, node: Node, place: CppPlace, writes: bool) -> None:
        """Record an access to a range of elements of an array."""
        self._scope.memory.setdefault(place.array, place.element)
        self._record(CppElement(node, place.array, (None,), writes))

    def _record(self, element: CppElement) -> None:
        self.elements.append(element)
        self._scope.elements[element.node] = element

    def _range_value(self, node: Node) -> bool:
        """Read ``*std::max_element(first, last)``; return False for any other expression."""
        call = node.child_by_field_name("argument")
        if node.type != "pointer_expression" or call is None or call.type != "call_expression":
            return False
        if called_name(call) not in ("max_element", "min_element"):
            return False
        self._call(call)
        return True

    def _call(self, node: Node) -> None:
        text, word = plain_text(node.child_by_field_name("function")), called_name(node)
        parts = arguments_of(node)
        own, types = self._scope.text.own, self._scope.text.types
        if self._scope.is_size(node) or (_LIMIT.fullmatch(text) and not parts):
            return
        if owner_of(node, ("has_value",)) is not None and not parts:
            return
        cast = re.fullmatch(r"static_cast<([\w:]+)>", text)
        is_pure = (cast[1] if cast else text) in types - {"auto"} and text not in own
        is_pure |= (
            word in _PURE_CALLS and word not in own and text.count("::") == text.count("std::")
        )
        if is_pure or word in self._scope.text.pure:
            for each in parts:
                self.value(each)
            return
        if (summary := self._scope.text.summaries.get(word)) and text.partition("<")[0] == word:
            self._called(node, summary, parts)
            return
        if word in own or not text.startswith(("std::", "mem")):
            raise NotRead(node)
        if word not in READS_RANGE and word not in WRITES_RANGE:
            raise NotRead(node)
        for at, each in enumerate(parts):
            writes, place = WRITES_RANGE.get(word) == at, self.place(each)
            if place is not None:
                self._range(each, place, writes)
            elif each.type == "pointer_expression" and text_of(each).startswith("&"):
                number = children(each)[0]
                self._target(number) if writes else self._number(number)
            elif writes:
                raise NotRead(node)
            else:
                self.value(each)

    def _called(self, node: Node, summary: CppSummary, given: list[Node]) -> None:
        """Record the memory accesses of a called function, through the pointers it is given."""
        places, values = dict[str, CppPlace](), dict[str, Polynomial]()
        if len(given) != len(summary.parameters):
            raise NotRead(node)
        for (name, kind), each in zip(summary.parameters.items(), given, strict=True):
            place = self.place(each) if isinstance(kind, CppPlace) else None
            if isinstance(kind, str):
                self.value(each)
                found = polynomial(each, self._scope, self.known)
                values |= {} if found is None else {name: found}
            elif place is None or (place.dims, place.strided) != (kind.dims, kind.strided):
                raise NotRead(node)
            else:
                kept = self._scope.memory.setdefault(place.array, place.element) == place.element
                places[name] = place if kept else dataclasses.replace(place, offset=None)
        constants = frozenset(self._scope.text.constants)
        elements = elements_of(node, summary, places, values, constants)
        if elements is None:
            raise NotRead(node)
        self.elements += elements
        if LEAVES in carried(summary.body):
            self.assigned.add(LEAVES)

    def declaration(self, node: Node) -> None:
        """Read a declaration of numbers, pointers, arrays or vectors."""
        for part in node.children_by_field_name("declarator"):
            self.declare(node, part)

    def declare(self, node: Node, part: Node) -> str:
        """Read one name's part of a C++ declaration, and return the name."""
        if any(child.type == "storage_class_specifier" for child in node.children):
            raise NotRead(node)  # a static variable keeps its value
        named, name = declared_name(part), text_of(declared_name(part))
        if named is None or any(each.type == "reference_declarator" for each in walk(part)):
            raise NotRead(node)
        if name in self.known or self._scope.lookup(name, {}) is not None:
            raise NotRead(node, f"`{name}`, which hides another name,")
        kind = plain_text(node.child_by_field_name("type"))
        self.known[name] = self.declared[name] = self._declared(node, part, name, kind)
        return name

    def _declared(self, node: Node, part: Node, name: str, kind: str) -> Known:
        target, value = part, part.child_by_field_name("value")
        if part.type == "init_declarator":
            target = part.child_by_field_name("declarator") or part
        elif part.type == "function_declarator":  # a vector of a length looks like one
            value = part.child_by_field_name("parameters")
        if vector := vector_of(kind):
            return self._memory(node, name, vector, [] if value is None else children(value))
        made = re.match(r"std::make_unique<([\w:]+)\[\]>", plain_text(value))
        if made and made[1] in self._scope.text.types and value is not None:
            return self._memory(node, name, made[1], arguments_of(value))
        if kind not in self._scope.text.types:
            raise NotRead(node)
        if target.type == "array_declarator":
            sizes, at = list[Node](), target
            while at.type == "array_declarator":
                sizes.append(at.child_by_field_name("size") or node)
                at = at.child_by_field_name("declarator") or node
            first = [] if value is None else [value]
            return self._memory(node, name, kind, [*sizes, *first], dims=len(sizes))
        place = None if value is None else self.place(value)
        if place is not None and (target.type == "pointer_declarator" or kind == "auto"):
            if kind not in ("auto", place.element):
                raise NotRead(node)
            settled = self._scope.settled(name, place)
            if settled is None:
                raise NotRead(node, f"pointer `{name}` that is assigned again")
            return settled
        if target.type != "identifier" or (value is None and kind == "auto"):
            raise NotRead(node)
        if value is not None:
            self._initial(value)
        return (
            kind_of(value, self._scope, self.known)
            if kind == "auto" and value is not None
            else kind
        )

    def _memory(
        self, node: Node, name: str, element: str, given: list[Node], dims: int = 1
    ) -> CppPlace:
        """Return the memory of an array that a declaration creates, after reading its arguments."""
        if element not in self._scope.text.types or element == "bool":
            raise NotRead(node)  # several elements of std::vector<bool> share a byte
        for each in given:
            if each.type == "parameter_declaration":  # one argument of a vector looks like one
                kind = self._scope.lookup(text_of(each), self.known)
                if kind not in WHOLE:
                    raise NotRead(node)
            else:
                self._initial(each)
        place = CppPlace(name, element, dims=dims)
        if self._scope.memory.get(name, element) != element:
            raise NotRead(node)
        self._scope.locals.add(name)
        return place

    def _initial(self, value: Node) -> None:
        if value.type in ("initializer_list", "argument_list"):
            for each in children(value):
                self._initial(each)
        else:
            self.value(value)

    def statement(self, node: Node) -> None:
        """Read any statement."""
        kind = node.type
        if kind == "expression_statement":
            for each in children(node):
                self._effect(each)
        elif kind == "declaration":
            self.declaration(node)
        elif kind in ("compound_statement", "else_clause"):
            known = dict(self.known)
            for each in children(node):
                self.statement(each)
            self.known = known
        elif kind == "if_statement":
            self._branch(node)
        elif kind in _LOOPS:
            known, self._loops = dict(self.known), self._loops + 1
            self._loop(node)
            self.known, self._loops = known, self._loops - 1
        elif kind == "continue_statement" or (kind == "break_statement" and self._loops):
            return
        elif kind == "throw_statement" and not self._returns:
            self.assigned.add(LEAVES)
        elif kind == "return_statement" and self._returns:
            for each in children(node):
                self.value(each)
        else:
            raise NotRead(node)

    def _effect(self, node: Node) -> None:
        """Read an expression whose value is discarded."""
        called = node.child_by_field_name("function") if node.type == "call_expression" else None
        if called is not None and _CHECKS.fullmatch(text_of(called)) and not self._returns:
            self.assigned.add(LEAVES)
            self.value(arguments_of(node)[0])
        elif called is not None and called.type == "field_expression":
            owner = owner_of(node, ("assign",))
            place = None if owner is None else self.place(owner)
            given = node.child_by_field_name("arguments")
            if place is None or owner is None or given is None:
                raise NotRead(node)
            self._range(owner, place, True)
            self._initial(given)
        elif node.type == "cast_expression" and plain_text(node).startswith("(void)"):
            return
        else:
            self.value(node)

    def _branch(self, node: Node) -> None:
        condition = node.child_by_field_name("condition")
        for each in [] if condition is None else children(condition):
            self.value(each)
        for name in ("consequence", "alternative"):
            if (part := node.child_by_field_name(name)) is not None:
                known = dict(self.known)
                self.statement(part)
                self.known = known

    def _loop(self, node: Node) -> None:
        if node.type == "for_range_loop":
            over, named = (node.child_by_field_name(name) for name in ("right", "declarator"))
            place = None if over is None else self.place(over)
            kind = plain_text(node.child_by_field_name("type"))
            if place is None or named is None or named.type != "identifier" or over is None:
                raise NotRead(node, "`for` over a range")
            if kind not in self._scope.text.types or place.dims != 1:
                raise NotRead(node, "`for` over a range")
            self._range(over, place, False)
            self.known[text_of(named)] = self.declared[text_of(named)] = kind
        first = node.child_by_field_name("initializer")
        if first is not None:
            self.statement(first) if first.type == "declaration" else self._effect(first)
        for name in ("condition", "update"):
            if (part := node.child_by_field_name(name)) is not None:
                for each in children(part) if part.type == "condition_clause" else [part]:
                    self._effect(each)
        if (body := node.child_by_field_name("body")) is not None:
            self.statement(body)
