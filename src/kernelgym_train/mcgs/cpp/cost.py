"""`LoopCost`: operations and memory accesses of a kernel's innermost loops.

One iteration of each recognised innermost loop is counted in the text. How often a loop runs is not
known: a loop that runs once counts as much as one that runs a million times. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.forms import CppAssign, CppFunction, CppLoop, inner_loops
from kernelgym_train.mcgs.cpp.loops import each_loop
from kernelgym_train.mcgs.cpp.proofs import accesses, reductions
from kernelgym_train.mcgs.cpp.syntax import text_of, walk

_ATOMIC = re.compile(r"^\s*#\s*pragma\s+omp\s+(atomic|critical)\b", re.MULTILINE)
_BYTES = {"float": 4, "int": 4, "int32_t": 4}
_DEAR = ("exp", "log", "tanh", "erf", "pow", "sin", "cos", "expm1", "log1p", "exp2", "log2")


@dataclass(frozen=True, slots=True)
class LoopCost:
    """Costs of one iteration of every innermost loop of a kernel, added up."""

    loops: int = 0
    """Number of innermost loops."""
    depth: int = 0
    """Greatest number of loops nested in each other."""
    far: int = 0
    """Number of accesses to an element far from that of the iteration before."""
    sums: int = 0
    """Number of loops that carry a sum, a maximum or a minimum."""
    operations: int = 0
    """Number of additions, products, comparisons and calls."""
    divisions: int = 0
    """Number of divisions."""
    exponentials: int = 0
    """Number of calls of ``exp``, ``log``, ``tanh`` and functions that cost as much."""
    bytes_moved: int = 0
    """Bytes that are read and written."""
    atomics: int = 0
    """Number of atomic and critical statements in the whole text."""
    parallel: bool = False
    """Whether a loop runs on several cores already."""


def _function(called: str) -> str:
    """Return the name of a C math function's variant for doubles, without its namespace."""
    name = called.removeprefix("std::")
    return name if name in _DEAR else name.removesuffix("f")


def cost_of(cpp: str) -> LoopCost:
    """Return the costs of a C++ text's innermost loops."""
    found = [(function, loop) for function, loop in each_loop(cpp) if not inner_loops(loop)]
    nodes = [node for _, loop in found for value in loop.values() for node in walk(value)]
    signs = [
        text_of(node.child_by_field_name("operator"))
        for node in nodes
        if node.type == "binary_expression"
        and all(parent.type != "subscript_expression" for parent in _above(node))
    ]
    calls = [
        _function(text_of(node.child_by_field_name("function")))
        for node in nodes
        if node.type == "call_expression"
    ]
    updates = sum(
        isinstance(each, CppAssign) and each.operator != "="
        for _, loop in found
        for each in loop.body
    )
    return LoopCost(
        loops=len(found),
        depth=max((_depth(loop) for _, loop in each_loop(cpp)), default=0),
        far=sum(not near for _, loop in found for near in _strides(loop)),
        sums=sum(bool(reductions(loop)) for _, loop in found),
        operations=len(signs) + len(calls) + updates,
        divisions=signs.count("/"),
        exponentials=sum(call in _DEAR for call in calls),
        bytes_moved=sum(_moved(function, loop) for function, loop in found),
        atomics=len(_ATOMIC.findall(cpp)),
        parallel="#pragma omp parallel" in cpp,
    )


def _above(node: Node) -> Iterator[Node]:
    parent = node.parent
    while parent is not None and not parent.type.endswith("statement"):
        yield parent
        parent = parent.parent


def _strides(loop: CppLoop) -> Iterator[bool]:
    """Yield, for each access of a loop, whether its stride is at most one element."""
    for access in accesses(loop.body):
        *outer, last = (index and index.coefficient(loop.variable) for index in access.index)
        near = last is not None and last.constant in (0, 1)
        yield near and all(each is not None and each.constant == 0 for each in outer)


def _moved(function: CppFunction, loop: CppLoop) -> int:
    return sum(
        _BYTES.get(function.arrays[access.array].element, 8) for access in accesses(loop.body)
    )


def _depth(loop: CppLoop) -> int:
    return 1 + max((_depth(inner) for inner in inner_loops(loop)), default=0)


def family_of(cost: LoopCost) -> str:
    """Return the family of a C++ kernel, such as ``product``, told from its costs.

    ``product``: sums in three nested loops; ``exponentials``: sums and exponentials;
    ``reduction``: other sums; ``elementwise``: loops without sums; ``unread``: no loop was
    recognised.
    """
    if not cost.loops:
        return "unread"
    if not cost.sums:
        return "elementwise"
    if cost.depth >= 3:
        return "product"
    return "exponentials" if cost.exponentials else "reduction"
