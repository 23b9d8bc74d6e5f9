"""What a C++ text and its functions declare, read from the syntax tree.

`text_in` and `scope_of` make the tables in `kernelgym_train.mcgs.cpp.scope`. A declaration that is
not understood is left out of them. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.expressions import NotRead, Walk
from kernelgym_train.mcgs.cpp.forms import FLOATS, WHOLE, CppPlace
from kernelgym_train.mcgs.cpp.polynomial import Polynomial
from kernelgym_train.mcgs.cpp.scope import (
    NUMBERS,
    CppScope,
    CppText,
    Known,
    declared_names,
    vector_of,
)
from kernelgym_train.mcgs.cpp.syntax import children, declared_name, plain_text, text_of, walk
from kernelgym_train.mcgs.cpp.whole import NARROW_LIMIT

_ACCESSOR = re.compile(
    r"(?:torch|at)::(?:Generic)?(?:Packed)?TensorAccessor(?:32|64)?<([\w:]+),(\d+)"
)


def types_in(root: Node) -> frozenset[str]:
    """Return the names in a C++ text that mean a number's type, such as aliases of ``float``."""
    found = {*NUMBERS, "auto"}
    for node in walk(root):
        if node.type == "operator_cast" or (
            node.type == "operator_name" and plain_text(node) != "operator()"
        ):
            return frozenset(NUMBERS)  # arithmetic may mean anything
        if node.type == "struct_specifier" and _is_aggregate(node):
            found.add(text_of(node.child_by_field_name("name")))
        if node.type == "type_parameter_declaration":
            found |= {text_of(each) for each in node.named_children}
        if node.type == "alias_declaration":
            if text_of(node.child_by_field_name("type")) in NUMBERS:
                found.add(text_of(node.child_by_field_name("name")))
        if node.type == "identifier" and text_of(node).startswith("AT_DISPATCH_"):
            found.add("scalar_t")
    return frozenset(found)


def _is_aggregate(structure: Node) -> bool:
    """Return True for a C++ struct of numbers without functions."""
    body = structure.child_by_field_name("body")
    fields = [] if body is None else children(body)
    return bool(fields) and all(
        each.type == "field_declaration"
        and text_of(each.child_by_field_name("type")) in NUMBERS
        and all(
            part.type == "field_identifier" for part in each.children_by_field_name("declarator")
        )
        for each in fields
    )


def fields_in(root: Node) -> dict[str, str]:
    """Return the types of number fields in C++ structs and classes, by name, if unambiguous."""
    found: dict[str, set[str]] = {}
    for node in walk(root):
        if node.type == "field_declaration":
            kind = text_of(node.child_by_field_name("type"))
            for each in node.children_by_field_name("declarator"):
                plain = each.type == "field_identifier" and kind in NUMBERS
                found.setdefault(text_of(each), set()).add(kind if plain else "")
    return {name: min(kinds) for name, kinds in found.items() if len(kinds) == 1 and min(kinds)}


def constants(root: Node) -> dict[str, Known]:
    """Return the numbers and arrays that a C++ text declares as constants outside of functions."""
    found: dict[str, Known] = {}
    for node in children(root):
        if node.type == "namespace_definition":
            body = node.child_by_field_name("body")
            found |= {} if body is None else constants(body)
        words = {text_of(child) for child in node.children if child.type == "type_qualifier"}
        kind = text_of(node.child_by_field_name("type"))
        if node.type == "declaration" and words & {"const", "constexpr"}:
            vector = vector_of(kind)
            for part in node.children_by_field_name("declarator"):
                target, name = part.child_by_field_name("declarator"), text_of(declared_name(part))
                if part.type == "init_declarator" and target is not None:
                    if target.type == "identifier" and kind in (*WHOLE, *FLOATS):
                        found[name] = kind
                    elif target.type == "identifier" and vector:
                        found[name] = CppPlace(name, vector)
                    elif target.type == "array_declarator" and kind in NUMBERS:
                        found[name] = CppPlace(name, kind, dims=plain_text(target).count("["))
    return found


def text_in(root: Node, numbers: Mapping[str, int]) -> CppText:
    """Return what a C++ text declares outside of functions.

    Args:
        root: Root of the text.
        numbers: Values of the macros that are numbers.
    """
    own = declared_names(root)
    # The name of a constant that is declared again may mean something else in a function.
    fixed = {name: kind for name, kind in constants(root).items() if own[name] == 1}
    for name in set(numbers) - set(own):
        fixed[name] = "int" if numbers[name] < NARROW_LIMIT else "int64_t"
    templated: defaultdict[str, list[str]] = defaultdict(list)
    for node in walk(root):
        if node.type == "template_parameter_list":
            for each in children(node):
                if each.type == "parameter_declaration":  # a number that is fixed when compiled
                    kind = plain_text(each.child_by_field_name("type"))
                    templated[text_of(declared_name(each))].append(kind)
    for name, kinds in templated.items():
        if own[name] == len(kinds):
            fixed[name] = kinds[0] if set(kinds) <= set(WHOLE) else "auto"
    enumerators = {
        text_of(node.child_by_field_name("name"))
        for node in walk(root)
        if node.type == "enumerator"
    }
    text = CppText(own, fixed, dict(numbers), types_in(root), enumerators, fields_in(root))
    for node in children(root):
        for each in (node, *(walk(node) if node.type == "namespace_definition" else ())):
            if each.type == "declaration":
                text.values |= _values(each)
    for node in walk(root):
        if node.type == "function_definition":
            declarator, body = (node.child_by_field_name(n) for n in ("declarator", "body"))
            name = function_name(node)
            if declarator is not None and body is not None and own[name] == 1:
                if not name.startswith("operator") and _is_pure(declarator, body, text, {}):
                    text.pure.add(name)
    return text


def _values(declaration: Node) -> dict[str, int]:
    """Return the values of whole constants that a C++ declaration writes as numbers."""
    words = {text_of(each) for each in declaration.children if each.type == "type_qualifier"}
    if not words & {"const", "constexpr"}:
        return {}
    found = {}
    for part in declaration.children_by_field_name("declarator"):
        value = text_of(part.child_by_field_name("value"))
        if value.isdecimal() and (value == "0" or not value.startswith("0")):
            found[text_of(declared_name(part))] = int(value)
    return found


def _is_pure(declarator: Node, body: Node, text: CppText, known: Mapping[str, Known]) -> bool:
    """Return True if a C++ function or lambda returns a number that its arguments alone decide."""
    scope = CppScope(declarator, body, text)
    parameters = parameters_of(declarator, text)
    declared = [each for each in walk(declarator) if each.type == "parameter_declaration"]
    if len(parameters) != len(declared) or any(map(_is_place, parameters.values())):
        return False
    walked = Walk(scope, {**known, **parameters}, may_return=True)
    try:
        walked.statement(body)
    except NotRead:
        return False
    return not walked.elements and walked.assigned <= {*parameters, *walked.declared}


def _is_place(known: Known) -> bool:
    return isinstance(known, CppPlace)


def type_of(known: Known) -> str:
    """Return the C++ type of a number, or for a pointer the type of its elements and ``*``."""
    return known if isinstance(known, str) else f"{known.element}*"


def function_name(function: Node) -> str:
    """Return the name in a C++ function's definition."""
    declarator = function.child_by_field_name("declarator")
    return text_of(None if declarator is None else declarator.child_by_field_name("declarator"))


def parameters_of(declarator: Node, text: CppText) -> dict[str, Known]:
    """Return the parameters of a C++ function or lambda that are numbers, pointers or vectors."""
    found: dict[str, Known] = {}
    for node in walk(declarator):
        if node.type not in ("parameter_declaration", "optional_parameter_declaration"):
            continue
        target, kind = (
            node.child_by_field_name("declarator"),
            plain_text(node.child_by_field_name("type")),
        )
        name = text_of(declared_name(target))
        if target is None or not name:
            continue
        accessor, vector = _ACCESSOR.match(kind), vector_of(kind)
        if accessor and target.type == "identifier":
            found[name] = CppPlace(name, accessor[1], dims=int(accessor[2]), strided=True)
        elif vector and vector in text.types - {"bool"}:
            found[name] = CppPlace(name, vector)
        elif kind in text.types and target.type == "identifier":
            found[name] = kind
        elif kind in text.types and target.type == "pointer_declarator":
            found[name] = CppPlace(name, kind)
    return found


def _members(function: Node) -> dict[str, Known]:
    """Return the numbers and pointers among the members of the class that a function is in."""
    found: dict[str, Known] = {}
    around = function.parent
    for node in children(around) if around is not None else ():
        if node.type != "field_declaration" or any(
            each.type == "storage_class_specifier" for each in node.children
        ):
            continue
        kind = plain_text(node.child_by_field_name("type"))
        for part in node.children_by_field_name("declarator"):
            name = text_of(declared_name(part))
            if part.type == "field_identifier" and kind in NUMBERS:
                found[text_of(part)] = kind
            elif part.type == "field_identifier" and vector_of(kind) in NUMBERS:
                found[text_of(part)] = CppPlace(text_of(part), vector_of(kind) or "")
            elif part.type == "pointer_declarator" and kind in NUMBERS and name:
                found[name] = CppPlace(name, kind, Polynomial.name(name))
    return found


def scope_of(node: Node, text: CppText, *, inside: bool = True) -> CppScope | None:
    """Return what a function declares outside of loops; None if it cannot be parsed.

    Args:
        node: The function's definition.
        text: Declarations of the text.
        inside: Whether the declarations in its body count, beside its parameters.
    """
    declarator, body = node.child_by_field_name("declarator"), node.child_by_field_name("body")
    while declarator is not None and declarator.type in (
        "reference_declarator",
        "pointer_declarator",
    ):
        declarator = children(declarator)[-1]
    if declarator is None or body is None or any(each.is_error for each in walk(node)):
        return None
    if declarator.type != "function_declarator":
        return None
    scope = CppScope(declarator, body, text)
    given = [each for each in walk(declarator) if each.type == "parameter_declaration"]
    order = [text_of(declared_name(each.child_by_field_name("declarator"))) for each in given]
    for name, kind in parameters_of(declarator, text).items():
        if isinstance(kind, str):
            scope.names[name] = kind
        elif (place := scope.settled(name, kind)) is not None:
            scope.names[name], scope.pointers[name] = place, order.index(name)
    for name, kind in _members(node).items():
        scope.names.setdefault(name, kind)
    for statement in children(body) if inside else ():
        if statement.type == "declaration":
            scope.names |= declared_in(statement, scope, {})
            scope.values |= _values(statement)
    return scope


def declared_in(declaration: Node, scope: CppScope, known: Mapping[str, Known]) -> dict[str, Known]:
    """Return what a declaration outside of recognised loops declares, if it is understood."""
    walked = Walk(scope, known)
    for part in declaration.children_by_field_name("declarator"):
        value = part.child_by_field_name("value")
        if value is not None and value.type == "lambda_expression":
            name = text_of(declared_name(part))
            if _is_pure_lambda(value, scope, known) and scope.text.own[name] == 1:
                scope.text.pure.add(name)
    try:
        walked.declaration(declaration)
    except NotRead:
        kind = plain_text(declaration.child_by_field_name("type"))
        if kind in scope.text.types - {"auto"}:  # its values do not matter, what it declares does
            walked.declared |= {
                text_of(each): kind
                for part in declaration.children_by_field_name("declarator")
                if (each := declared_name(part)) is not None
                and each in (part, part.child_by_field_name("declarator"))
                and not any(
                    inner.type == "storage_class_specifier" for inner in declaration.children
                )
            }
    return walked.declared


def _is_pure_lambda(node: Node, scope: CppScope, known: Mapping[str, Known]) -> bool:
    """Return True if arguments and unchanging numbers alone decide a C++ lambda's result."""
    declarator, body = node.child_by_field_name("declarator"), node.child_by_field_name("body")
    if declarator is None or body is None:
        return False
    around = {**scope.names, **known}
    kept = {
        name: kind
        for name, kind in around.items()
        if name not in scope.written | scope.twice and isinstance(kind, str)
    }
    return _is_pure(declarator, body, scope.text, kept)
