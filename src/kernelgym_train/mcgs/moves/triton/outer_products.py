"""Rewrites Triton loops that add outer products of single columns and rows to work in blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from kernelgym_train.mcgs.triton.knobs import values_of
from kernelgym_train.mcgs.triton.loops import TritonLoop, assignment, only, statements
from kernelgym_train.mcgs.triton.module import (
    Edit,
    JitFunction,
    TritonModule,
    calls_in,
    found_in,
    is_call,
)

_DEPTH = "TILE_K"
_LEAST = 16  # rows and columns that tl.dot takes
_START = 32  # depth of a block


def in_blocks(module: TritonModule, function: JitFunction, loop: TritonLoop) -> str | None:
    """Return the Triton module with a loop over single columns and rows turned into blocks.

    The loop is ``for k in range(0, K)``, with a load of one column, a load of one row, and ``acc
    += column[:, None] * row[None, :]``. The new block size is a parameter with a default.
    """
    if (loop.start, loop.step) != ("0", "1") or loop.is_static or loop.options:
        return None
    if not re.fullmatch(r"\w+", loop.end) or len(loop.body) != 3:
        return None
    taken = module.names(function.node) | set(function.parameters)
    if {_DEPTH, f"{loop.variable}s"} & taken:
        return None
    loads = dict(filter(None, map(assignment, loop.body[:2])))
    last = only(loop.body[2])
    if len(loads) != 2 or not isinstance(last, cst.AugAssign):
        return None
    if not isinstance(last.operator, cst.AddAssign) or not isinstance(last.target, cst.Name):
        return None
    factors = _factors(module, last.value)
    if factors is None or set(factors) != set(loads) or last.target.value in loads:
        return None
    if not _is_tile(module, function, last.target.value):
        return None
    vectors = _vectors(function)
    depth = f"{loop.variable}s"
    edits: list[Edit] = []
    for name, own, other in (
        (factors[0], "[:, None]", "[None, :]"),
        (factors[1], "[None, :]", "[:, None]"),
    ):
        text = _load_of_block(module, loads[name], loop, vectors, (own, depth + other))
        if text is None:
            return None
        edits.append((loads[name], text))
    edits.append((last.value, f'tl.dot({factors[0]}, {factors[1]}, input_precision="ieee")'))
    edits.append((loop.call, f"range(0, {loop.end}, {_DEPTH})"))
    spans = [(module.span(node), text) for node, text in edits]
    inner = module.line_span(loop.body[0])[0]
    indent = module.indentation(loop.body[0])
    spans.append(((inner, inner), f"{indent}{depth} = {loop.variable} + tl.arange(0, {_DEPTH})\n"))
    parameter = function.node.params.params[-1]
    if parameter.annotation is None:
        return None
    end = module.span(parameter.default or parameter.annotation.annotation)[1]
    spans.append(((end, end), f", {_DEPTH}: tl.constexpr = {_START}"))
    return module.spliced(spans)


def _factors(module: TritonModule, value: cst.BaseExpression) -> tuple[str, str] | None:
    """Return the names in ``column[:, None] * row[None, :]``, the column's first; or None."""
    text = module.plain(value)
    for pattern, order in (
        (r"(\w+)\[:,None\]\*(\w+)\[None,:\]", (1, 2)),
        (r"(\w+)\[None,:\]\*(\w+)\[:,None\]", (2, 1)),
    ):
        found = re.fullmatch(pattern, text)
        if found is not None:
            return found[order[0]], found[order[1]]
    return None


def _is_tile(module: TritonModule, function: JitFunction, name: str) -> bool:
    """Return True if a name is made by ``tl.zeros((M, N), ...)`` with both sizes large enough."""
    values = values_of(module, function.name)
    for statement in function.body:
        made = assignment(statement)
        if made is None or made[0] != name or not is_call(made[1], "zeros"):
            continue
        assert isinstance(made[1], cst.Call)
        shape = made[1].args[0].value if made[1].args else None
        if isinstance(shape, cst.Tuple | cst.List) and len(shape.elements) == 2:
            sizes = [values.get(module.text(each.value), 0) for each in shape.elements]
            return min(sizes) >= _LEAST
    return False


def _vectors(function: JitFunction) -> set[str]:
    """Return the names that are assigned an expression with ``tl.arange``."""
    return {
        made[0]
        for statement in statements(function.body)
        if (made := assignment(statement)) is not None and calls_in(made[1], "arange")
    }


def _load_of_block(
    module: TritonModule,
    load: cst.BaseExpression,
    loop: TritonLoop,
    vectors: set[str],
    shapes: tuple[str, str],
) -> str | None:
    """Return the Triton load of a block of columns or rows, in place of the load of one.

    Args:
        module: The module.
        load: The load.
        loop: The loop.
        vectors: Names that hold vectors of offsets.
        shapes: Index that makes offsets two-dimensional, and the block's numbers of columns or
            rows in two dimensions.
    """
    if not is_call(load, "load"):
        return None
    assert isinstance(load, cst.Call)
    given = {arg.keyword.value if arg.keyword is not None else "": arg.value for arg in load.args}
    if len(given) != len(load.args) or set(given) - {"", "mask", "other"}:
        return None
    own, depth = shapes
    if not module.names(given[""]) & vectors or loop.variable not in module.names(given[""]):
        return None
    pointer = _renamed(module, given[""], {**dict.fromkeys(vectors, own), loop.variable: depth})
    masks = [f"({depth} < {loop.end})"]
    if "mask" in given:
        if loop.variable in module.names(given["mask"]):
            return None
        masks.insert(0, f"({_renamed(module, given['mask'], dict.fromkeys(vectors, own))})")
    other = module.text(given["other"]) if "other" in given else "0.0"
    if other not in ("0", "0.0"):
        return None
    return f"tl.load({pointer}, mask={' & '.join(masks)}, other=0.0)"


def _renamed(module: TritonModule, node: cst.BaseExpression, by: dict[str, str]) -> str:
    """Return an expression's text with names indexed or replaced.

    Args:
        module: The module.
        node: The expression.
        by: An index in brackets, which is put after the name, or a text in place of the name.
    """
    start, end = module.span(node)
    text = module.source.encode()[start:end]
    for (first, last), name in sorted(_places(module, node), reverse=True):
        if name in by:
            new = f"{name}{by[name]}" if by[name].startswith("[") else by[name]
            text = text[: first - start] + new.encode() + text[last - start :]
    return text.decode()


def _places(
    module: TritonModule, node: cst.BaseExpression
) -> Iterator[tuple[tuple[int, int], str]]:
    for each in found_in(node, cst.Name):
        parent = module.parent(each)
        if not (isinstance(parent, cst.Attribute) and parent.attr is each):
            yield module.span(each), each.value
