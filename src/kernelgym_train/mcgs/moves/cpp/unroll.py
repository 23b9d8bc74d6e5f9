"""`unroll`: lets the compiler repeat the bodies of innermost loops."""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.cpp.editing import with_lines_before
from kernelgym_train.mcgs.cpp.loops import innermost_loops
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_TIMES = (4, 8, 2)


@extension_move("exact", phase=60, weight=0.5)
def unroll(cpp: str) -> Iterator[ChangedText]:
    """Repeat the body of an innermost loop, so that fewer jumps are made.

    Yields each number of repetitions, for all innermost loops without a directive.
    """
    loops = [loop for loop in innermost_loops(cpp) if not loop.pragmas]
    if not loops:
        return
    for times in _TIMES:
        lines = [(loop.node, f"#pragma GCC unroll {times}") for loop in loops]
        yield ChangedText("innermost", f"{times} times", with_lines_before(cpp, lines))
