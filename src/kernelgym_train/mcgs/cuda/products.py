"""`CudaProduct`: a kernel in which each thread computes one element of a product of matrices.

Recognised is one form: two indices of the grid, a guard ``if (row < M && col < N)`` (or its
opposite with ``return``), in it a sum that starts at 0, one loop ``for (int k = 0; k < K; ++k)``
that adds ``a[..] * b[..]`` to it, and a store of an expression of the sum. One operand's subscript
holds ``row`` and ``k``, the other's ``col`` and ``k``. Statements between the loop and the store
may declare values. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.syntax import (
    children,
    declared_name,
    identifiers,
    index_node,
    plain_text,
    polynomial_of,
    text_of,
    walk,
)
from kernelgym_train.mcgs.cuda.text import (
    CudaKernel,
    CudaText,
    global_indices,
    index_axis,
    statements_of,
)

_FLOATS = ("float", "double")
ZERO = re.compile(r"0(\.0*)?[fF]?")
"""Pattern of a literal that a sum begins at."""


@dataclass(frozen=True, eq=False)
class CudaOperand:
    """One operand of a product."""

    array: str
    subscript: Node
    along: str
    """Name of the index beside ``k`` in the subscript: the row or the column."""
    is_k_near: bool
    """Whether elements are contiguous along ``k``."""


@dataclass(frozen=True, eq=False)
class CudaProduct:
    """A product of matrices, one element a thread."""

    kernel: CudaKernel
    row: str
    """Name of the row's number."""
    col: str
    """Name of the column's number."""
    rows: str
    """Bound of ``row``, a parameter."""
    cols: str
    """Bound of ``col``, a parameter."""
    k: str
    """Variable of the loop over the terms of a sum."""
    depth: str
    """Bound of ``k``."""
    total: str
    """Name of the sum."""
    number: str
    """Type of the sum."""
    left: CudaOperand
    """Left factor of the product, indexed by ``row`` and ``k``."""
    right: CudaOperand
    """Right factor of the product, indexed by ``k`` and ``col``."""
    constants: tuple[Node, ...]
    """Declarations before the guard, except those of the thread's row and column."""
    after: tuple[Node, ...]
    """Statements after the loop: the last one is the store."""


def product_of(text: CudaText, kernel: CudaKernel) -> CudaProduct | None:
    """Return a CUDA kernel as a product of matrices; None if it has another form."""
    indices = global_indices(kernel, text.constants)
    guarded = _guarded(kernel, indices)
    if guarded is None:
        return None
    bounds, before, body = guarded
    if len(bounds) != 2 or len({indices[name] for name in bounds}) != 2:
        return None
    numbers = {each.name for each in kernel.parameters if not each.is_pointer}
    if not set(bounds.values()) <= numbers:
        return None
    loops = [number for number, each in enumerate(body) if each.type == "for_statement"]
    if len(loops) != 1 or not body[loops[0] + 1 :]:
        return None
    total = _total(body[: loops[0]])
    counted = counted_loop(body[loops[0]])
    if total is None or counted is None:
        return None
    k, depth, inside = counted
    factors = _factors(inside, total[0])
    if factors is None or identifiers(depth) & {*bounds, k, total[0]}:
        return None
    operands = [_operand(each, kernel, k, bounds) for each in factors]
    along = {each.along: each for each in operands if each is not None}
    after = body[loops[0] + 1 :]
    if len(along) != 2 or not _is_end(after, kernel, {each.array for each in along.values()}):
        return None
    # Rows and columns as the store has them: neighbouring columns lie side by side.
    col = _near(after[-1], tuple(bounds))
    if col is None:
        return None
    row = next(name for name in bounds if name != col)
    used = {name for each in (*before, *body) for name in _indices_in(each)}
    if used:
        return None
    return CudaProduct(
        *(kernel, row, col, bounds[row], bounds[col], k, text_of(depth), *total),
        *(along[row], along[col], tuple(before), tuple(after)),
    )


def _guarded(
    kernel: CudaKernel, indices: dict[str, str]
) -> tuple[dict[str, str], list[Node], list[Node]] | None:
    """Return a CUDA kernel's bounds by index, declarations before its guard, guarded statements."""
    before: list[Node] = []
    statements = children(kernel.body)
    for number, each in enumerate(statements):
        if each.type == "declaration":
            parts = each.children_by_field_name("declarator")
            own = [text_of(declared_name(part)) in indices for part in parts]
            if not any(own):
                if identifiers(each) & set(indices):
                    return None  # its value differs from element to element
                before.append(each)
            elif not all(own):
                return None
            continue
        if each.type != "if_statement" or each.child_by_field_name("alternative") is not None:
            return None
        condition = each.child_by_field_name("condition")
        inside = each.child_by_field_name("consequence")
        if condition is None or inside is None:
            return None
        body = statements_of(inside)
        leaves = [one.type for one in body] == ["return_statement"]
        bounds = _bounds(plain_text(condition), indices, opposite=leaves)
        rest = statements[number + 1 :]
        if bounds is None or bool(rest) != leaves:
            return None
        return bounds, before, rest if leaves else body
    return None


def _bounds(text: str, indices: dict[str, str], *, opposite: bool) -> dict[str, str] | None:
    sign, word = (">=", "||") if opposite else ("<", "&&")
    found = {}
    for part in text.removeprefix("(").removesuffix(")").split(word):
        match = re.fullmatch(rf"\(?(\w+){sign}(\w+)\)?", part)
        if match is None or match[1] not in indices:
            return None
        found[match[1]] = match[2]
    return found


def _total(before: list[Node]) -> tuple[str, str] | None:
    """Return name and type of the only sum that a guard's body declares, with the value 0."""
    if len(before) != 1 or before[0].type != "declaration":
        return None
    parts = before[0].children_by_field_name("declarator")
    if len(parts) != 1 or parts[0].type != "init_declarator":
        return None
    kind = text_of(before[0].child_by_field_name("type"))
    value = plain_text(parts[0].child_by_field_name("value"))
    name = text_of(declared_name(parts[0]))
    return (name, kind) if kind in _FLOATS and ZERO.fullmatch(value) else None


def counted_loop(loop: Node) -> tuple[str, Node, Node] | None:
    """Return the variable, the bound and the body of a CUDA loop that counts from 0 by 1."""
    begin, condition, update, body = (
        loop.child_by_field_name(name) for name in ("initializer", "condition", "update", "body")
    )
    if begin is None or condition is None or update is None or body is None:
        return None
    start = re.fullmatch(r"(?:int|int64_t|size_t|unsigned|long)(\w+)=0;?", plain_text(begin))
    if start is None:
        return None
    name = start[1]
    bound = condition.child_by_field_name("right")
    if not plain_text(condition).startswith(f"{name}<") or bound is None:
        return None
    if text_of(condition.child_by_field_name("operator")) != "<":
        return None
    if plain_text(update) not in (f"++{name}", f"{name}++", f"{name}+=1"):
        return None
    return name, bound, body


def _factors(body: Node, total: str) -> tuple[Node, Node] | None:
    """Return both factors of the one statement ``total += a * b;`` of a CUDA loop."""
    statements = statements_of(body)
    if len(statements) != 1 or statements[0].type != "expression_statement":
        return None
    (added,) = children(statements[0])
    left, right = (added.child_by_field_name(name) for name in ("left", "right"))
    if added.type != "assignment_expression" or text_of(left) != total or right is None:
        return None
    operator = text_of(added.child_by_field_name("operator"))
    if operator == "=":
        match = [right.child_by_field_name(name) for name in ("left", "right")]
        if text_of(right.child_by_field_name("operator")) != "+" or text_of(match[0]) != total:
            return None
        right = match[1]
    elif operator != "+=":
        return None
    while right is not None and right.type == "parenthesized_expression":
        right = children(right)[0]
    if right is None or text_of(right.child_by_field_name("operator")) != "*":
        return None
    one, other = (right.child_by_field_name(name) for name in ("left", "right"))
    return None if one is None or other is None else (one, other)


def _operand(node: Node, kernel: CudaKernel, k: str, bounds: dict[str, str]) -> CudaOperand | None:
    array = node.child_by_field_name("argument")
    index = index_node(node) if node.type == "subscript_expression" else None
    pointer = kernel.pointers.get(text_of(array))
    if index is None or pointer is None or pointer.element not in _FLOATS:
        return None
    names = identifiers(index)
    along = [name for name in bounds if name in names]
    found = polynomial_of(index)
    if found is None or k not in names or len(along) != 1:
        return None
    step = found.coefficient(k)
    near = step is not None and step.constant == 1
    return CudaOperand(text_of(array), index, along[0], near)


def _is_end(after: list[Node], kernel: CudaKernel, operands: set[str]) -> bool:
    """Return True if statements are declarations, then one store to an array that is no operand."""
    *declared, last = after
    if any(each.type != "declaration" for each in declared):
        return False
    if last.type != "expression_statement" or not children(last):
        return False
    store = children(last)[0]
    target = store.child_by_field_name("left")
    if store.type != "assignment_expression" or target is None:
        return False
    array = text_of(target.child_by_field_name("argument"))
    return target.type == "subscript_expression" and array in kernel.pointers.keys() - operands


def _near(store: Node, indices: tuple[str, ...]) -> str | None:
    """Return the index of a CUDA kernel along which a store's elements are contiguous."""
    target = children(store)[0].child_by_field_name("left")
    index = None if target is None else index_node(target)
    found = None if index is None else polynomial_of(index)
    if found is None:
        return None
    for name in indices:
        step = found.coefficient(name)
        if step is not None and step.constant == 1:
            return name
    return None


def _indices_in(node: Node) -> set[str]:
    return {found[0] for each in walk(node) if (found := index_axis(each)) is not None}
