"""`pad_tail_and_mask`: an innermost loop is split into whole vectors and a tail.

The compiler then knows that the first loop's count is a multiple of the width, and makes no
remainder for it. Each iteration runs as before, in the same order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.cpp.loops import Loop, inner_loops, read_functions, walk_loops
from kernelgym_train.mcgs.cpp.syntax import text_of, walk
from kernelgym_train.mcgs.cpp.vectors import fresh
from kernelgym_train.mcgs.moves.definition import Move, Realisation
from kernelgym_train.mcgs.variant import Variant

__all__ = ["PAD_TAIL_AND_MASK"]

_WIDTHS = (16, 64)


def _realise(variant: Variant) -> Iterator[Realisation]:
    """Yield each width, for all innermost loops that can be split."""
    file = variant.file
    loops = [
        loop
        for function in read_functions(file.cpp)
        for loop in walk_loops(function.loops)
        if _splits(loop)
    ]
    if not loops:
        return
    for width in _WIDTHS:
        root = loops[0].node
        while root.parent is not None:
            root = root.parent
        taken = {text_of(each) for each in walk(root) if each.type == "identifier"}
        edits = [(loop.node, _split(loop, width, taken)) for loop in loops]
        changed = dataclasses.replace(
            variant, source=file.with_cpp(replaced(file.cpp, edits)).source
        )
        yield Realisation("innermost", f"{width} wide", changed)


def _splits(loop: Loop) -> bool:
    """Return True if a loop may be cut in two."""
    parent = loop.node.parent
    plain = not inner_loops(loop) and not loop.pragmas and loop.step == 1
    # A loop that was split before begins at the end of the one that it follows.
    return (
        plain
        and loop.lower.constant == 0
        and loop.upper.constant is None
        and not (loop.upper_text.endswith("_whole") and loop.upper_text.isidentifier())
        and parent is not None
        and parent.type == "compound_statement"
    )


def _split(loop: Loop, width: int, taken: set[str]) -> str:
    """Return loops over whole widths and over the rest."""
    whole = fresh(f"{loop.variable}_whole", taken)
    body = text_of(loop.node.child_by_field_name("body"))
    head = f"for ({loop.type} {loop.variable}"
    lines = [
        # Where the count is negative, it is cut towards zero: neither loop runs then.
        f"const {loop.type} {whole} = ({loop.upper_text}) / {width} * {width};",
        f"{head} = 0; {loop.variable} < {whole}; ++{loop.variable}) {body}",
        f"{head} = {whole}; {loop.variable} < {loop.upper_text}; ++{loop.variable}) {body}",
    ]
    return ("\n" + " " * loop.node.start_point.column).join(lines)


PAD_TAIL_AND_MASK = Move(
    "pad_tail_and_mask",
    ("cpp",),
    "exact",
    45,
    0.5,
    "Split a loop into whole vectors and a tail, so that the first part needs no mask.",
    _realise,
    knob="presence",
)
