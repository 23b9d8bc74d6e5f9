"""`unroll`: lets the compiler repeat the bodies of innermost loops."""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.cpp.editing import with_lines_before
from kernelgym_train.mcgs.cpp.extension import file_of, with_cpp
from kernelgym_train.mcgs.cpp.loops import innermost_loops
from kernelgym_train.mcgs.moves.definition import Realisation, search_move
from kernelgym_train.mcgs.variant import Variant

_TIMES = (4, 8, 2)


@search_move("exact", phase=60, weight=0.5)
def unroll(variant: Variant) -> Iterator[Realisation]:
    """Repeat the body of an innermost loop, so that fewer jumps are made.

    Yields each number of repetitions, for all innermost loops without a directive.
    """
    cpp = file_of(variant).cpp
    loops = [loop for loop in innermost_loops(cpp) if not loop.pragmas]
    if not loops:
        return
    for times in _TIMES:
        lines = [(loop.node, f"#pragma GCC unroll {times}") for loop in loops]
        changed = with_cpp(variant, with_lines_before(cpp, lines))
        yield Realisation("innermost", f"{times} times", changed)
