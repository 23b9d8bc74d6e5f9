"""`avoid_atomics_reduce`: gives each thread a sum of its own in place of an atomic addition.

For a loop on all cores that adds to one number under ``atomic`` or ``critical``. Precondition: the
number is a variable of the function, declared once, whose address is not taken, and all that the
loop does with it is to add to it; under ``critical``, what is added calls nothing. The start adds
in no fixed order either.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.cpp.forms import FLOATS, WHOLE
from kernelgym_train.mcgs.cpp.syntax import children, identifiers, parsed, sides_of, text_of, walk
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_LOOP = re.compile(r"#\s*pragma\s+omp\s+parallel\s+for(\s+schedule\([^()]*\))?\s*")
_ACTS = ("call_expression", "assignment_expression", "update_expression", "lambda_expression")
_ALONE = re.compile(r"#\s*pragma\s+omp\s+(atomic(\s+update)?|critical)\s*")


@extension_move("reassociates", phase=5, weight=2.0)
def avoid_atomics_reduce(cpp: str) -> Iterator[ChangedText]:
    """Give each thread a sum of its own with OpenMP's reduction, in place of an atomic addition.

    Yields a reduction for each parallel loop whose atomic additions are all to one number.
    """
    root = parsed(cpp)
    if any(node.is_error for node in walk(root)):
        return
    count = 0
    for function in walk(root):
        body = function.child_by_field_name("body")
        if function.type != "function_definition" or body is None:
            continue
        statements = children(body)
        for directive, loop in itertools.pairwise(statements):
            if loop.type != "for_statement" or not _LOOP.fullmatch(text_of(directive)):
                continue
            count += 1
            found = _sums(body, loop)
            if found is None:
                continue
            name, alone = found
            edits = [(directive, f"{text_of(directive).rstrip()} reduction(+:{name})\n")]
            edits += [(each, "") for each in alone]
            yield ChangedText(f"loop {count}", f"reduction of {name}", replaced(cpp, edits))


def _sums(body: Node, loop: Node) -> tuple[str, list[Node]] | None:
    """Return the name of a loop's only sum and the directives that guard it, or None."""
    directives = [node for node in walk(loop) if node.type.startswith("preproc")]
    alone = [node for node in directives if node.type == "preproc_call"]
    if not alone or any(not _ALONE.fullmatch(text_of(node)) for node in alone):
        return None
    names: set[str] = set()
    for node in alone:
        added = node.next_named_sibling
        parts = [] if added is None else children(added)
        if len(parts) != 1 or parts[0].type != "assignment_expression":
            return None
        sides = sides_of(parts[0])
        if sides is None or sides[0].type != "identifier" or sides[1] != "+=":
            return None
        target, _, value = sides
        if "critical" in text_of(node) and any(each.type in _ACTS for each in walk(value)):
            return None  # a function that is called there may need the guard as well
        names.add(text_of(target))
        if names & identifiers(value):
            return None
    if len(names) != 1:
        return None
    (name,) = names
    inside = [node for node in walk(loop) if _names(node, name)]
    if len(inside) != len(alone) or not _is_plain(body, name):
        return None
    return name, alone


def _is_plain(body: Node, name: str) -> bool:
    """Return True if a name is a local number without pointers."""
    declared = 0
    for node in walk(body):
        if node.type == "declaration" and node.parent == body:
            kind = text_of(node.child_by_field_name("type"))
            for part in children(node):
                if part.type == "init_declarator" and kind in (*FLOATS, *WHOLE):
                    target = part.child_by_field_name("declarator")
                    declared += target is not None and _names(target, name)
        elif node.type in ("pointer_expression", "reference_declarator", "lambda_expression"):
            whole = node.parent if node.type == "reference_declarator" else node
            if whole is not None and any(_names(each, name) for each in walk(whole)):
                return False
    others = sum(
        node.type in ("declaration", "parameter_declaration")
        and any(_names(each, name) for each in node.children_by_field_name("declarator"))
        for node in walk(body)
    )
    inner = sum(
        node.type == "init_declarator"
        and _names(node.child_by_field_name("declarator") or node, name)
        for node in walk(body)
    )
    return declared == 1 and inner == 1 and others == 0


def _names(node: Node, name: str) -> bool:
    return node.type == "identifier" and text_of(node) == name
