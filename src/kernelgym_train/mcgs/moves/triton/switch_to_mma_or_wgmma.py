"""`switch_to_mma_or_wgmma`: computes sums of products by tensor cores.

A sum ``tl.sum(a[:, :, None] * b[None, :, :], axis=1)`` becomes ``tl.dot(a, b)``. A loop that adds
the outer product of one column and one row at a time takes a block of them at a time, masked at the
end. Operands that were converted to floats for ``tl.dot`` are given as they are: products of
half-precision numbers are exact in floats. All compute floats as IEEE does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.moves.triton.outer_products import in_blocks
from kernelgym_train.mcgs.triton.loops import loops_of
from kernelgym_train.mcgs.triton.module import TritonModule, calls_in

_IEEE = 'input_precision="ieee"'
_FORMS = {
    ("[:,:,None]", "[None,:,:]", "1"): "{0}, {1}",
    ("[:,None,:]", "[None,:,:]", "2"): "{0}, tl.trans({1})",
    ("[None,:,:]", "[:,None,:]", "2"): "{1}, tl.trans({0})",
    ("[None,:,:]", "[:,:,None]", "1"): "{1}, {0}",
}
"""Operands of ``tl.dot``, by the shapes of the two factors and the axis of their sum."""


@triton_move("reassociates", phase=20, weight=2.0)
def switch_to_mma_or_wgmma(module: TritonModule) -> Iterator[ChangedText]:
    """Compute sums of products by tensor cores.

    Yields dot products in place of sums, then operands without conversion.
    """
    for function in module.functions.values():
        for number, call in enumerate(calls_in(function.node, "sum")):
            operands = _operands(module, call)
            if operands is not None:
                text = module.edited([(call, f"tl.dot({operands}, {_IEEE})")])
                yield ChangedText(f"sum {number + 1} of {function.name}", "tl.dot", text)
        for loop in loops_of(module, function):
            blocks = in_blocks(module, function, loop)
            if blocks is not None:
                yield ChangedText(
                    f"loop {loop.number + 1} of {function.name}", "outer products in blocks", blocks
                )
        for number, call in enumerate(calls_in(function.node, "dot")):
            place = f"dot {number + 1} of {function.name}"
            plain = _unconverted(module, call)
            if plain is not None:
                yield ChangedText(place, "operands as loaded", module.edited([(call, plain)]))


def _operands(module: TritonModule, call: cst.Call) -> str | None:
    """Return the operands of the ``tl.dot`` that computes a sum of products; or None."""
    given = {arg.keyword.value if arg.keyword is not None else "": arg.value for arg in call.args}
    axis, product = given.get("axis"), call.args[0].value if call.args else None
    if len(call.args) == 2 and call.args[1].keyword is None:
        axis = call.args[1].value
    if not isinstance(product, cst.BinaryOperation) or axis is None or len(call.args) != 2:
        return None
    if not isinstance(product.operator, cst.Multiply):
        return None
    parts = []
    for side in (product.left, product.right):
        if not isinstance(side, cst.Subscript):
            return None
        value = module.text(side.value)
        shape = re.sub(r"\s+", "", module.text(side)[len(value) :])
        parts.append((value, shape))
    form = _FORMS.get((parts[0][1], parts[1][1], module.text(axis)))
    return None if form is None else form.format(parts[0][0], parts[1][0])


def _unconverted(module: TritonModule, call: cst.Call) -> str | None:
    """Return a ``tl.dot`` whose operands are no longer converted to floats before it; or None."""
    texts, changed = [], False
    for arg in call.args:
        text = module.text(arg.value)
        if arg.keyword is not None:
            if arg.keyword.value != "input_precision":
                texts.append(f"{arg.keyword.value}={text}")
            continue
        if len(texts) < 2 and text.endswith(".to(tl.float32)"):
            text, changed = text.removesuffix(".to(tl.float32)"), True
        texts.append(text)
    return f"tl.dot({', '.join([*texts, _IEEE])})" if changed else None
