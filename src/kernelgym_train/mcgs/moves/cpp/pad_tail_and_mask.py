"""`pad_tail_and_mask`: splits an innermost loop into whole vectors and a tail.

The compiler then knows that the first loop's count is a multiple of the vector's width, and needs
no remainder loop. Iterations run in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.cpp.editing import for_head, lines_at, replaced
from kernelgym_train.mcgs.cpp.forms import CppLoop
from kernelgym_train.mcgs.cpp.loops import innermost_loops
from kernelgym_train.mcgs.cpp.syntax import identifiers, root_of, text_of
from kernelgym_train.mcgs.cpp.vectors import fresh
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_WIDTHS = (16, 64)


@extension_move("exact", phase=45, weight=0.5)
def pad_tail_and_mask(cpp: str) -> Iterator[ChangedText]:
    """Split a loop into whole vectors and a tail, so that the first part needs no mask.

    Yields each width, for all innermost loops that can be split.
    """
    loops = [loop for loop in innermost_loops(cpp) if _splits(loop)]
    for width in _WIDTHS if loops else ():
        taken = identifiers(root_of(loops[0].node))
        changed = replaced(cpp, [(loop.node, _split(loop, width, taken)) for loop in loops])
        yield ChangedText("innermost", f"{width} wide", changed)


def _splits(loop: CppLoop) -> bool:
    """Return True if an innermost loop may be cut into whole vectors and a tail."""
    if loop.pragmas or loop.step != 1 or not loop.is_in_block:
        return False
    # A loop that was split before begins at the end of the one that it follows.
    was_split = loop.upper_text.endswith("_whole") and loop.upper_text.isidentifier()
    return loop.lower.constant == 0 and loop.upper.constant is None and not was_split


def _split(loop: CppLoop, width: int, taken: set[str]) -> str:
    """Return the text of a loop over whole vectors, and of a loop over the rest."""
    whole = fresh(f"{loop.variable}_whole", taken)
    kind, name, body = loop.type, loop.variable, text_of(loop.body_node)
    lines = [
        # Where the count is negative, it is cut towards zero: neither loop runs then.
        f"const {kind} {whole} = ({loop.upper_text}) / {width} * {width};",
        f"{for_head(kind, name, '0', whole)} {body}",
        f"{for_head(kind, name, whole, loop.upper_text)} {body}",
    ]
    return lines_at(loop.column, lines)
