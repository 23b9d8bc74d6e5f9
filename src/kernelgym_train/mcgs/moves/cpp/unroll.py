"""`unroll`: the compiler repeats the body of innermost loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from kernelgym_train.mcgs.cpp.editing import with_lines_before
from kernelgym_train.mcgs.cpp.loops import inner_loops, read_functions, walk_loops
from kernelgym_train.mcgs.moves.definition import Move, Realisation
from kernelgym_train.mcgs.variant import Variant

__all__ = ["UNROLL"]

_TIMES = (4, 8, 2)


def _realise(variant: Variant) -> Iterator[Realisation]:
    """Yield each count, for all innermost loops without a directive."""
    file = variant.file
    loops = [
        loop
        for function in read_functions(file.cpp)
        for loop in walk_loops(function.loops)
        if not inner_loops(loop) and not loop.pragmas
    ]
    if not loops:
        return
    for times in _TIMES:
        cpp = with_lines_before(
            file.cpp, [(loop.node, f"#pragma GCC unroll {times}") for loop in loops]
        )
        changed = dataclasses.replace(variant, source=file.with_cpp(cpp).source)
        yield Realisation("innermost", f"{times} times", changed)


UNROLL = Move(
    "unroll",
    ("cpp",),
    "exact",
    60,
    0.5,
    "Repeat the body of an innermost loop, so that fewer jumps are made.",
    _realise,
    knob="presence",
)
