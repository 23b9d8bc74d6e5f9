"""`vectorize_global_loads`: tells the compiler which offsets are contiguous and aligned.

An offset ``START + tl.arange(0, BLOCK)`` is contiguous by its form. It is a multiple of BLOCK if
START is a product with BLOCK, or the variable of a loop from 0 in steps of BLOCK. Only what follows
from the text is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.triton.loops import assignment, loops_of, statements
from kernelgym_train.mcgs.triton.module import JitFunction, TritonModule


@triton_move("exact", phase=62, weight=0.3)
def vectorize_global_loads(module: TritonModule) -> Iterator[ChangedText]:
    """Tell the compiler which offsets are contiguous and aligned, so that it loads wide vectors.

    Yields each function with hints for all offsets whose form is proven.
    """
    for function in module.functions.values():
        edits = list(_hints(module, function))
        if edits:
            text = module.spliced(edits)
            yield ChangedText(function.name, "offsets", text)


def _hints(module: TritonModule, function: JitFunction) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield hints on contiguity and alignment for Triton, to insert after offsets are assigned."""
    steps = {loop.variable: loop.step for loop in loops_of(module, function) if loop.start == "0"}
    for statement in statements(function.body):
        made = assignment(statement)
        if made is None:
            continue
        name, text = made[0], module.plain(made[1])
        found = re.fullmatch(r"(.+)\+tl\.arange\(0,([A-Za-z_]\w*)\)", text)
        if found is None or name in found[1]:
            continue
        start, block = found[1], found[2]
        product = re.fullmatch(r"(?:[\w.]+(?:\(\d\))?\*)*[\w.]+(?:\(\d\))?", start)
        aligned = steps.get(start) == block
        aligned |= product is not None and block in start.split("*")
        if not aligned or block not in function.constants:
            continue
        indent, end = module.indentation(statement), module.line_span(statement)[1]
        hint = f"{name} = tl.max_contiguous(tl.multiple_of({name}, {block}), {block})"
        yield (end, end), f"{indent}{hint}\n"
