"""`share_rows`: shares the columns of a row among the lanes of a warp.

Before, each thread computes a whole row. Then each lane takes every 32nd column, so that
neighbouring lanes access neighbouring elements. Sums, maxima and minima of the lanes are combined
by shuffles after each loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.cuda.rows import is_store, rows_of
from kernelgym_train.mcgs.cuda.text import read_cuda
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move
from kernelgym_train.mcgs.templates import filled

_LANES = 32


@extension_move("reassociates", phase=6, weight=3.0, language="cuda", tried_first=True)
def share_rows(cpp: str) -> Iterator[ChangedText]:
    """Let the lanes of a warp share the columns of a row, and combine their sums by shuffles.

    Yields one warp a row for each kernel of one thread a row.
    """
    text = read_cuda(cpp)
    for name, kernel in text.kernels.items():
        launch, found = text.only_launch(name), rows_of(text, kernel)
        if launch is None or found is None or len(launch.grid) != 1 or len(launch.block) != 1:
            continue
        threads = text.value(launch.block[0])
        (blocks,) = launch.grid
        others = [size for each in text.launches if each is not launch for size in each.grid]
        shared = any(size.start_byte == blocks.start_byte for size in others)
        if threads is None or threads % _LANES or shared or "lane" in text_of(kernel.node):
            continue
        loops = {loop.node.id: loop for loop in found.loops}
        values = {"found": found.elements, "loops": loops, "is_store": is_store}
        body = filled("share_rows.cu.j2", text=text_of, **values).strip()
        edits = [(kernel.body, body), (blocks, f"({text_of(blocks)}) * {_LANES}")]
        yield ChangedText(name, "a warp a row", replaced(cpp, edits))
