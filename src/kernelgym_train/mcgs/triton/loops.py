"""Loops, assignments and tiles of a Triton function. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from kernelgym_train.mcgs.triton.module import (
    JitFunction,
    TritonModule,
    calls_in,
    found_in,
    integer,
    is_call,
)


@dataclass(frozen=True, eq=False)
class TritonLoop:
    """A loop over ``range``, ``tl.range`` or ``tl.static_range``."""

    node: cst.For
    number: int
    """Index of the loop among the function's loops."""
    variable: str
    call: cst.Call
    start: str
    """Text of the loop variable's first value."""
    end: str
    """Text of the loop's upper bound."""
    step: str
    """Text of the loop's step."""
    options: bool
    """Whether the loop has options for the compiler, such as ``num_stages``."""

    @property
    def body(self) -> Sequence[cst.BaseStatement]:
        """Statements of the loop."""
        body = self.node.body
        return body.body if isinstance(body, cst.IndentedBlock) else ()

    @property
    def is_static(self) -> bool:
        """Whether the compiler unrolls the loop."""
        return is_call(self.call, "static_range")


def loops_of(module: TritonModule, function: JitFunction) -> tuple[TritonLoop, ...]:
    """Return the counted loops of a Triton function, in the order of the text."""
    found: list[TritonLoop] = []
    for number, node in enumerate(found_in(function.node, cst.For)):
        call = node.iter
        if not isinstance(call, cst.Call) or not isinstance(node.target, cst.Name):
            continue
        if not isinstance(node.body, cst.IndentedBlock):
            continue  # moves change whole lines of a body
        plain = isinstance(call.func, cst.Name) and call.func.value == "range"
        if not plain and not is_call(call, "range") and not is_call(call, "static_range"):
            continue
        given = [arg for arg in call.args if arg.keyword is None]
        if node.orelse is not None or not 1 <= len(given) <= 3 or any(arg.star for arg in given):
            continue
        texts = [module.text(arg.value) for arg in given]
        start, end, step = (
            ("0", texts[0], "1") if len(texts) == 1 else (texts[0], texts[1], [*texts, "1"][2])
        )
        found.append(
            TritonLoop(
                node, number, node.target.value, call, start, end, step, len(given) < len(call.args)
            )
        )
    return tuple(found)


def assignment(statement: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    """Return the name and the value of a statement ``name = value``; None for any other."""
    small = only(statement)
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return None
    target = small.targets[0].target
    return (target.value, small.value) if isinstance(target, cst.Name) else None


def assigned(statement: cst.CSTNode) -> set[str]:
    """Return the names that a statement assigns; for a block, those in its first line only."""
    small = only(statement)
    targets: list[cst.CSTNode] = []
    if isinstance(small, cst.Assign):
        targets = [each.target for each in small.targets]
    elif isinstance(small, cst.AugAssign | cst.AnnAssign):
        targets = [small.target]
    return {name.value for each in targets for name in found_in(each, cst.Name)}


def program_axis(value: cst.CSTNode) -> int | None:
    """Return the axis of ``tl.program_id(axis)``, converted or not; None for other expressions."""
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value == "to":
            value = value.func.value
    if not is_call(value, "program_id"):
        return None
    assert isinstance(value, cst.Call)
    return integer(value.args[0].value) if len(value.args) == 1 else None


def only(statement: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """Return the only small statement of a line; None if the line has several or begins a block."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        return statement.body[0]
    return None


def statements(body: Sequence[cst.BaseStatement]) -> Iterator[cst.BaseStatement]:
    """Yield statements of a Triton function; after each block statement, those inside it."""
    for each in body:
        yield each
        inner = getattr(each, "body", None)
        if isinstance(inner, cst.IndentedBlock):
            yield from statements(inner.body)


def arange_names(function: JitFunction) -> tuple[str, ...]:
    """Return constants whose value is the length of a ``tl.arange(0, NAME)``."""
    found = []
    for call in calls_in(function.node, "arange"):
        last = call.args[-1].value if call.args else None
        if isinstance(last, cst.Name) and last.value in function.constants:
            found.append(last.value)
    return tuple(dict.fromkeys(found))


def reads_descriptors(function: JitFunction) -> bool:
    """Return True if a Triton function loads or stores blocks of descriptors that it is given."""
    return any(
        isinstance(call.func, cst.Attribute)
        and call.func.attr.value in ("load", "store", "gather", "scatter")
        and isinstance(call.func.value, cst.Name)
        and call.func.value.value in function.parameters
        for call in found_in(function.node, cst.Call)
    )


def shapes_of(function: JitFunction) -> set[tuple[str, str]]:
    """Return the names of rows and columns of the blocks that ``tl.zeros`` and ``tl.full`` make."""
    found = set()
    for call in calls_in(function.node, "zeros", "full"):
        first = call.args[0].value if call.args else None
        if isinstance(first, cst.Tuple | cst.List) and len(first.elements) == 2:
            rows, columns = (each.value for each in first.elements)
            if isinstance(rows, cst.Name) and isinstance(columns, cst.Name):
                found.add((rows.value, columns.value))
    return found


def tile_of(function: JitFunction) -> tuple[str, str, str] | None:
    """Return the constants that are rows, columns and depth of the tile of ``tl.dot``.

    None if there is no ``tl.dot``, or its tile cannot be read from one ``tl.zeros((M, N), ...)``
    and from one constant more that is the length of an ``tl.arange``.
    """
    if not calls_in(function.node, "dot"):
        return None
    shapes = shapes_of(function)
    if len(shapes) != 1:
        return None
    rows, columns = shapes.pop()
    if rows == columns or not {rows, columns} <= set(function.constants):
        return None
    depth = [name for name in arange_names(function) if name not in (rows, columns)]
    return (rows, columns, depth[0]) if len(depth) == 1 else None
