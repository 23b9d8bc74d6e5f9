"""`CudaElements`: a kernel in which each thread computes one element of arrays. Pure.

Recognised is one form: an index ``int i = blockIdx.x * blockDim.x + threadIdx.x;`` and a guard
``if (i < n) { ... }`` or ``if (i >= n) return;``, with nothing after the guarded statements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.syntax import (
    children,
    declared_name,
    index_node,
    plain_text,
    text_of,
    walk,
)
from kernelgym_train.mcgs.cuda.text import CudaKernel, CudaText, global_indices, statements_of

_TOGETHER = re.compile(r"__sync|__shfl|atomic|threadIdx|blockIdx|blockDim|gridDim|__shared__")
_LEAVES = ("return_statement", "break_statement", "continue_statement", "goto_statement")


@dataclass(frozen=True, eq=False)
class CudaElements:
    """A kernel that computes one element a thread."""

    kernel: CudaKernel
    index: str
    """Name of the number of the thread's element."""
    kind: str
    """Type of the thread's index, such as ``int``."""
    count: str
    """Name of the number of elements, which the guard compares the index with."""
    declaration: Node
    """Declaration of the index, alone in its statement."""
    body: tuple[Node, ...]
    """Statements that compute one element."""

    @property
    def begin(self) -> str:
        """Expression that the declaration sets the thread's index to."""
        (declared,) = self.declaration.children_by_field_name("declarator")
        return text_of(declared.child_by_field_name("value"))

    @property
    def is_alone(self) -> bool:
        """Whether the body uses no other thread: no shuffle, barrier, atomic or thread index."""
        return not any(_TOGETHER.search(text_of(each)) for each in self.body)

    def accesses(self) -> dict[str, list[Node]]:
        """Return the accesses ``array[i]`` in the body, by array."""
        found: dict[str, list[Node]] = {}
        for statement in self.body:
            for node in walk(statement):
                array = text_of(node.child_by_field_name("argument"))
                if node.type == "subscript_expression" and array in self.kernel.pointers:
                    index = index_node(node)
                    if index is not None and text_of(index) == self.index:
                        found.setdefault(array, []).append(node)
        return found

    def mentions(self, array: str) -> int:
        """Return the number of times that the body names an array."""
        return sum(
            node.type == "identifier" and text_of(node) == array
            for statement in self.body
            for node in walk(statement)
        )


def elements_of(text: CudaText, kernel: CudaKernel) -> CudaElements | None:
    """Return a kernel as one that computes one element a thread; None for another form."""
    indices = global_indices(kernel, text.constants)
    if list(indices.values()) != ["x"]:
        return None
    (index,) = indices
    statements = children(kernel.body)
    if len(statements) < 2 or statements[0].type != "declaration":
        return None
    declared = statements[0].children_by_field_name("declarator")
    if len(declared) != 1 or text_of(declared_name(declared[0])) != index:
        return None
    kind = text_of(statements[0].child_by_field_name("type"))
    guard = statements[1]
    condition, inside = (guard.child_by_field_name(n) for n in ("condition", "consequence"))
    other = guard.child_by_field_name("alternative")
    if guard.type != "if_statement" or condition is None or inside is None or other is not None:
        return None
    leaves = [each.type for each in statements_of(inside)] == ["return_statement"]
    sign = ">=" if leaves else "<"
    bound = re.fullmatch(rf"\({re.escape(index)}{sign}(\w+)\)", plain_text(condition))
    body = statements[2:] if leaves else statements_of(inside)
    if bound is None or (statements[2:] and not leaves) or not body:
        return None
    if any(node.type in _LEAVES for each in body for node in walk(each)):
        return None
    return CudaElements(kernel, index, kind, bound[1], statements[0], tuple(body))


def written(node: Node) -> set[str]:
    """Return the names of arrays whose elements a node of CUDA code assigns to."""
    found = set()
    for each in walk(node):
        target = None
        if each.type == "assignment_expression":
            target = each.child_by_field_name("left")
        elif each.type == "update_expression":
            target = each.child_by_field_name("argument")
        if target is not None and target.type == "subscript_expression":
            found.add(text_of(target.child_by_field_name("argument")))
    return found
