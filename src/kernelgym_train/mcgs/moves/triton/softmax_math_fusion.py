"""`softmax_math_fusion`: computes a row's maximum and sum in one pass, and cheaper exponentials.

- The pass for the maximum and the pass for the sum of exponentials become one: when the maximum
  rises, the sum so far is scaled. A row of ``-inf`` in its first blocks keeps a sum of 0.
- ``tl.exp(x)`` becomes ``tl.exp2(x * log2(e))``, which the machine has.
- A division by a row's sum becomes a multiplication by its reciprocal.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import libcst as cst

from kernelgym_train.mcgs.cpp.vectors import fresh
from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.triton.loops import (
    TritonLoop,
    assigned,
    assignment,
    loops_of,
    only,
    statements,
)
from kernelgym_train.mcgs.triton.module import (
    JitFunction,
    TritonModule,
    calls_in,
    found_in,
)

_LOG2_E = "1.4426950408889634"


@triton_move("reassociates", phase=10, weight=1.0)
def softmax_math_fusion(module: TritonModule) -> Iterator[ChangedText]:
    """Compute a row's maximum and sum in one pass, exponentials to base 2, and reciprocals once.

    Yields one pass for two, then exponentials to base 2, then reciprocals.
    """
    for function in module.functions.values():
        loops = loops_of(module, function)
        for first, second in itertools.pairwise(loops):
            text = _online(module, function, first, second)
            if text is not None:
                yield ChangedText(f"passes of {function.name}", "one pass", text)
        exps = [call for call in calls_in(function.node, "exp") if len(call.args) == 1]
        if exps and not any(calls_in(call.args[0], "exp") for call in exps):
            text = module.edited(
                (call, f"tl.exp2(({module.text(call.args[0].value)}) * {_LOG2_E})") for call in exps
            )
            yield ChangedText(f"exp of {function.name}", "exp2", text)
        divisions = list(_divisions(module, function))
        if divisions:
            place = f"divisions of {function.name}"
            yield ChangedText(place, "by reciprocals", module.edited(divisions))


def _divisions(module: TritonModule, function: JitFunction) -> Iterator[tuple[cst.CSTNode, str]]:
    """Yield divisions by a sum's name in Triton, rewritten as products with its reciprocal."""
    sums = {
        name
        for statement in statements(function.body)
        if (found := _value(statement)) is not None and calls_in(found, "sum")
        for name in assigned(statement)
    }
    for node in found_in(function.node, cst.BinaryOperation):
        by = node.right
        if isinstance(node.operator, cst.Divide) and isinstance(by, cst.Name) and by.value in sums:
            yield by, f"(1.0 / {by.value})"
            yield node.operator, " * "


def _value(statement: cst.CSTNode) -> cst.BaseExpression | None:
    small = only(statement)
    if isinstance(small, cst.Assign | cst.AugAssign):
        return small.value
    return None


def _online(
    module: TritonModule, function: JitFunction, first: TritonLoop, second: TritonLoop
) -> str | None:
    """Return the Triton module with maximum and sum in one pass, not two; None if it cannot be.

    The first pass ends with ``m = tl.maximum(m, tl.max(x, ...))``, the second with ``s +=
    tl.sum(tl.exp(x - m), ...)``; what stands before that is the same in both. Statements between
    the passes read neither.
    """
    if (first.start, first.end, first.step) != (second.start, second.end, second.step):
        return None
    if first.variable != second.variable or len(first.body) != len(second.body):
        return None
    pairs = zip(first.body[:-1], second.body[:-1], strict=True)
    if any(module.plain(one) != module.plain(two) for one, two in pairs):
        return None
    if any(assignment(each) is None for each in first.body[:-1]):
        return None
    rising, summed = assignment(first.body[-1]), only(second.body[-1])
    if rising is None or not isinstance(summed, cst.AugAssign):
        return None
    peak, risen = rising
    one = re.fullmatch(
        rf"tl\.maximum\({peak},(tl\.max\((\w+),(?:axis=)?-?\d+\))\)", module.plain(risen)
    )
    two = re.fullmatch(
        r"tl\.sum\(tl\.(exp2?)\((\w+)-(\w+)\),((?:axis=)?-?\d+)\)", module.plain(summed.value)
    )
    if one is None or two is None or not isinstance(summed.operator, cst.AddAssign):
        return None
    if two[2] != one[2] or two[3] != peak or not isinstance(summed.target, cst.Name):
        return None
    body = list(function.body)
    if first.node not in body or second.node not in body:
        return None
    places = body.index(first.node), body.index(second.node)
    between = body[places[0] + 1 : places[1]]
    total, taken = summed.target.value, module.names(function.node)
    inner = {name for each in first.body for name in assigned(each)} | {first.variable}
    for each in between:
        found = assignment(each)
        if found is None or inner & ({found[0]} | module.names(found[1])):
            return None
    risen_name, base = (fresh(name, taken) for name in (f"{peak}_next", f"{peak}_base"))
    indent = module.indentation(first.body[-1])
    exp, axis = two[1], two[4]
    lines = [
        f"{risen_name} = tl.maximum({peak}, {one[1].replace(',', ', ')})",
        f'{base} = tl.where({risen_name} == float("-inf"), 0.0, {risen_name})',
        f"{total} = {total} * tl.{exp}({peak} - {base})"
        f" + tl.sum(tl.{exp}({one[2]} - {base}), {axis})",
        f"{peak} = {risen_name}",
    ]
    start = module.block_span(first.node)[0]
    last = module.line_span(first.body[-1])
    data = module.source.encode()
    merged = data[start : last[0]].decode() + "".join(f"{indent}{line}\n" for line in lines)
    moved = "".join(data[slice(*module.line_span(each))].decode() for each in between)
    return module.spliced([((start, module.block_span(second.node)[1]), moved + merged)])
