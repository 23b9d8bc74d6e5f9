"""Reads which memory a method call such as ``x.data_ptr<float>()`` leads to, in C++ text. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.forms import CppPlace
from kernelgym_train.mcgs.cpp.scope import ACCESSORS, POINTERS, CppScope, Known, owner_of
from kernelgym_train.mcgs.cpp.syntax import arguments_of, plain_text, text_of


def pointer_of(node: Node, scope: CppScope, known: Mapping[str, Known]) -> CppPlace | None:
    """Return the memory that ``x.data_ptr<float>()`` and similar calls lead to."""
    text, given = plain_text(node.child_by_field_name("function")), plain_text(node)
    cast = re.fullmatch(r"(?:static|reinterpret)_cast<(?:const)?([\w:]+)\*>", text)
    if cast and cast[1] in scope.text.types:
        owner = owner_of((arguments_of(node) or [node])[0], ("data_ptr",))
        return None if owner is None else CppPlace(text_of(owner), cast[1])
    owner = owner_of(node, (*POINTERS, *ACCESSORS))
    if owner is None:
        return None
    name, place = text_of(owner), scope.lookup(text_of(owner), known)
    if isinstance(place, CppPlace):
        return place if given.endswith((".data()", ".begin()", ".end()", ".get()")) else None
    if "data_ptr" in scope.text.own:
        return None
    found = re.search(r"data_ptr<(?:const)?([\w:]+)>$", text)
    if found and found[1] in scope.text.types and given.endswith("()"):
        return CppPlace(name, found[1])
    found = re.search(r"accessor(?:32|64)?<([\w:]+),(\d+)(?:,.*)?>$", text)
    if found and found[1] in scope.text.types and given.endswith("()"):
        return CppPlace(name, found[1], dims=int(found[2]), strided=True)
    return None
