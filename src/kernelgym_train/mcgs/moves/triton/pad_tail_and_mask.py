"""`pad_tail_and_mask`: takes the mask of a loop's last block out of all other blocks.

A loop in blocks is split: the first part runs over whole blocks, where the comparison with the
loop's bound always holds and is left out of the masks; the second part is the loop as it was, for
the rest. Two forms are recognised: ``range(0, K, BLOCK)`` with ``k + arange < K``, and
``range(0, tl.cdiv(K, BLOCK))`` with ``arange < K - k * BLOCK``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.triton.loops import TritonLoop, assignment, loops_of, statements
from kernelgym_train.mcgs.triton.module import (
    Edit,
    JitFunction,
    TritonModule,
    calls_in,
    found_in,
)


@triton_move("exact", phase=40, weight=0.6)
def pad_tail_and_mask(module: TritonModule) -> Iterator[ChangedText]:
    """Take the mask of a loop's last block out of all other blocks.

    Yields the split of each loop that masks its last block.
    """
    for function in module.functions.values():
        values = _single_values(module, function)
        for loop in loops_of(module, function):
            heads = None if loop.is_static else _heads(loop)
            if heads is None or len(found_in(loop.node, cst.For)) > 1:
                continue
            edits = [
                edit
                for call in calls_in(loop.node.body, "load")
                for edit in _unmasked(module, call, loop, values)
            ]
            if not edits:
                continue
            start, end = module.block_span(loop.node)
            (from_, to), call = (start, end), module.span(loop.call)
            data = module.source.encode()
            head = module.text(loop.call).partition("(")[0]
            options = [module.text(a) for a in loop.call.args if a.keyword is not None]
            first, rest = (
                f"{head}({', '.join([text, *(each.rstrip(', ') for each in options)])})"
                for text in heads
            )
            tail = data[from_ : call[0]].decode() + rest + data[call[1] : to].decode()
            spliced = [(module.span(node), text) for node, text in [*edits, (loop.call, first)]]
            text = module.spliced([*spliced, ((end, end), tail)])
            yield ChangedText(
                f"loop {loop.number + 1} of {function.name}", "whole blocks apart", text
            )


def _heads(loop: TritonLoop) -> tuple[str, str] | None:
    """Return arguments of ``range`` over whole blocks and over the rest, in Triton; or None."""
    if loop.start != "0":
        return None
    if re.fullmatch(r"[A-Za-z_]\w*", loop.step) and re.fullmatch(r"\w+", loop.end):
        whole = f"{loop.end} - {loop.end} % {loop.step}"
        return f"0, {whole}, {loop.step}", f"{whole}, {loop.end}, {loop.step}"
    divided = _cdiv(loop)
    if divided is not None and loop.step == "1":
        size, block = divided
        return f"0, {size} // {block}", f"{size} // {block}, {loop.end}"
    return None


def _cdiv(loop: TritonLoop) -> tuple[str, str] | None:
    """Return K and BLOCK of a loop bound ``tl.cdiv(K, BLOCK)``; None for another bound."""
    found = re.fullmatch(r"(?:tl|triton)\.cdiv\((\w+), ([A-Za-z_]\w*)\)", loop.end)
    return (found[1], found[2]) if found else None


def _single_values(module: TritonModule, function: JitFunction) -> dict[str, str]:
    """Return the values of names that a Triton function assigns once, as texts without spaces."""
    found: dict[str, list[str]] = {}
    for statement in statements(function.body):
        made = assignment(statement)
        if made is not None:
            found.setdefault(made[0], []).append(module.plain(made[1]))
    return {name: texts[0] for name, texts in found.items() if len(texts) == 1}


def _unmasked(
    module: TritonModule, call: cst.Call, loop: TritonLoop, values: dict[str, str]
) -> Iterator[Edit]:
    """Yield the edit that drops from a Triton mask comparisons that always hold in whole blocks."""
    given = {arg.keyword.value: arg for arg in call.args if arg.keyword is not None}
    if "mask" not in given:
        return
    mask = given["mask"].value
    if isinstance(mask, cst.Name):
        bound = [
            made[1]
            for statement in loop.body
            if (made := assignment(statement)) is not None and made[0] == mask.value
        ]
        if len(bound) != 1 or mask.value not in values:
            return
        mask = bound[0]
    parts = list(_conjuncts(mask))
    kept = [each for each in parts if not _holds(module, each, loop, values)]
    if len(kept) == len(parts):
        return
    args = []
    for arg in call.args:
        name = arg.keyword.value if arg.keyword is not None else ""
        if name == "mask" and kept:
            args.append(f"mask={' & '.join(f'({module.text(each)})' for each in kept)}")
        elif name not in ("mask", "other") or (name == "other" and kept):
            args.append(f"{name}={module.text(arg.value)}" if name else module.text(arg.value))
    yield call, f"{module.text(call.func)}({', '.join(args)})"


def _conjuncts(mask: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(mask, cst.BinaryOperation) and isinstance(mask.operator, cst.BitAnd):
        yield from _conjuncts(mask.left)
        yield from _conjuncts(mask.right)
    else:
        yield mask


def _holds(
    module: TritonModule, part: cst.BaseExpression, loop: TritonLoop, values: dict[str, str]
) -> bool:
    """Return True if a comparison in a Triton mask holds for every element of a whole block."""
    if not isinstance(part, cst.Comparison) or len(part.comparisons) != 1:
        return False
    (right,) = part.comparisons
    if not isinstance(right.operator, cst.LessThan):
        return False
    left = part.left
    if isinstance(left, cst.Subscript):  # ``[:, None]`` moves elements and changes none
        shape = module.plain(left)[len(module.plain(left.value)) :]
        if not re.fullmatch(r"\[(:|None)(,(:|None))*\]", shape):
            return False
        left = left.value
    bound = module.plain(right.comparator)
    index, v = module.plain(left), loop.variable

    def expanded(text: str) -> str:
        return values.get(text, text)

    divided = _cdiv(loop)
    block = loop.step if divided is None else divided[1]
    lane = f"tl.arange(0,{block})"
    offset = v if divided is None else f"{v}*{block}"
    terms = {"+".join(sorted(expanded(each) for each in _terms(expanded(index))))}
    if divided is None:
        return bound == loop.end and "+".join(sorted((v, lane))) in terms
    size = divided[0]
    if bound == size:
        return "+".join(sorted((offset, lane))) in terms
    return bound == f"{size}-{offset}" and lane in terms


def _terms(text: str) -> list[str]:
    """Return the terms of a sum in a text, split at plus and minus signs outside of brackets."""
    found, depth = [""], 0
    for sign in text:
        depth += (sign in "([") - (sign in ")]")
        if sign == "+" and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return found
