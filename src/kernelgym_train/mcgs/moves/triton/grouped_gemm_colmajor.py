"""`grouped_gemm_colmajor`: runs programs that use the same operands at the same time.

The two numbers of a program's tile are permuted in groups by ``tl.swizzle2d``, so that programs
that run together share rows and columns of the operands in the second cache. Each pair of numbers
still occurs once, whatever the grid, so each tile is computed once.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.triton.loops import assignment, program_axis
from kernelgym_train.mcgs.triton.module import (
    JitFunction,
    TritonModule,
    calls_in,
)

_GROUPS = (8, 4, 16, 2)


@triton_move("exact", phase=25, weight=1.0)
def grouped_gemm_colmajor(module: TritonModule) -> Iterator[ChangedText]:
    """Let programs that use the same rows and columns run at the same time, by groups of tiles.

    Yields groups of several sizes, by rows or by columns.
    """
    for function in module.functions.values():
        if calls_in(function.node, "swizzle2d"):
            continue
        if "GROUP" in " ".join(function.constants).upper():
            continue  # the kernel has groups, whose size `change_block_sizes` sets
        for way, after, lines in _ways(module, function):
            indent = module.indentation(after)
            for size in _GROUPS:
                told = "".join(f"{indent}{line.replace('SIZE', str(size))}\n" for line in lines)
                end = module.line_span(after)[1]
                text = module.spliced([((end, end), told)])
                yield ChangedText(function.name, f"groups of {size} {way}", text)


def _ways(
    module: TritonModule, function: JitFunction
) -> Iterator[tuple[str, cst.BaseStatement, list[str]]]:
    """Yield (order, statement to insert after, lines) that permute a program's two tile numbers."""
    ids: dict[int, tuple[str, cst.BaseStatement]] = {}
    divided: dict[str, tuple[str, str, cst.BaseStatement]] = {}
    stored: dict[str, int] = {}
    last: cst.BaseStatement | None = None
    for statement in function.body:
        found = assignment(statement)
        if found is None:
            continue
        name, value = found
        stored[name] = stored.get(name, 0) + 1
        axis = program_axis(value)
        if axis is not None:
            ids[axis] = (name, statement)
            last = statement
        if isinstance(value, cst.BinaryOperation):
            sign = {"FloorDivide": "//", "Modulo": "%"}.get(type(value.operator).__name__)
            one, two = value.left, value.right
            if sign and isinstance(one, cst.Name) and one.value == ids.get(0, ("",))[0]:
                divided[sign] = (name, module.text(two), statement)
    if set(ids) == {0, 1} and last is not None:
        fast, slow = ids[0][0], ids[1][0]
        if stored[fast] == stored[slow] == 1 and _unused_before(module, function, last, fast, slow):
            sizes = "tl.num_programs(1), tl.num_programs(0), SIZE"
            yield "columns", last, [f"{slow}, {fast} = tl.swizzle2d({slow}, {fast}, {sizes})"]
            # The same order of launch, read by columns: groups along the other axis.
            sizes = "tl.num_programs(0), tl.num_programs(1), SIZE"
            linear = f"{slow} * tl.num_programs(0) + {fast}"
            yield (
                "rows",
                last,
                [
                    f"program = {linear}",
                    f"{fast}, {slow} = tl.swizzle2d(program // tl.num_programs(1), "
                    f"program % tl.num_programs(1), {sizes})",
                ],
            )
    if set(ids) == {0} and set(divided) == {"//", "%"}:
        (high, count, first), (low, other, second) = divided["//"], divided["%"]
        last = max((first, second), key=lambda each: module.span(each))
        if count == other and stored[high] == stored[low] == 1:
            if _unused_before(module, function, last, high, low):
                rows = f"tl.num_programs(0) // ({count})"
                yield (
                    "rows",
                    last,
                    [f"{high}, {low} = tl.swizzle2d({high}, {low}, {rows}, {count}, SIZE)"],
                )


def _unused_before(
    module: TritonModule, function: JitFunction, last: cst.BaseStatement, *names: str
) -> bool:
    """Return True if two names are not read before a statement, and `program` is an unused name."""
    for statement in function.body:
        found = assignment(statement)
        used = module.names(found[1]) if found is not None else module.names(statement)
        if used & set(names):
            return False
        if statement is last:
            break
    return "program" not in module.names(function.node)
