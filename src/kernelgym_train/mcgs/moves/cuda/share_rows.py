"""`share_rows`: shares the columns of a row among the lanes of a warp.

Before, each thread computes a whole row. Then each lane takes every 32nd column, so that
neighbouring lanes access neighbouring elements. Sums, maxima and minima of the lanes are combined
by shuffles after each loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.cpp.editing import indent_of, replaced
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.cuda.rows import CudaRowLoop, CudaRows, is_store, rows_of
from kernelgym_train.mcgs.cuda.text import read_cuda
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

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
        edits = [(kernel.body, _body(found)), (blocks, f"({text_of(blocks)}) * {_LANES}")]
        yield ChangedText(name, "a warp a row", replaced(cpp, edits))


def _body(found: CudaRows) -> str:
    elements = found.elements
    (declared,) = elements.declaration.children_by_field_name("declarator")
    begin = text_of(declared.child_by_field_name("value"))
    loops = {loop.node.id: loop for loop in found.loops}
    parts = []
    for statement in elements.body:
        if statement.id in loops:
            parts += [_shared(loops[statement.id]), *_combined(loops[statement.id])]
        elif is_store(statement):
            parts.append(f"if (lane == 0) {{ {text_of(statement)} }}")
        else:
            parts.append(text_of(statement))
    lines = [
        "{",
        f"  const {elements.kind} {elements.index} = ({begin}) / {_LANES};",
        f"  const int lane = threadIdx.x % {_LANES};",
        f"  if ({elements.index} < {elements.count}) {{",
        *(f"    {indent_of(part, 4)}" for part in parts),
        "  }",
        "}",
    ]
    return "\n".join(lines)


def _shared(loop: CudaRowLoop) -> str:
    """Return a loop over every 32nd column, beginning with the lane's own."""
    body = loop.node.child_by_field_name("body")
    head = f"for (int {loop.variable} = lane; {loop.variable} < {loop.bound}; "
    return f"{head}{loop.variable} += {_LANES}) {text_of(body)}"


def _combined(loop: CudaRowLoop) -> Iterator[str]:
    """Yield loops that combine the lanes' values of each number that a loop changed."""
    for name, how in loop.combined:
        other = f"__shfl_xor_sync(0xffffffffu, {name}, offset)"
        value = f"{name} + {other}" if how == "+" else f"{how}({name}, {other})"
        yield f"for (int offset = 16; offset > 0; offset /= 2) {name} = {value};"
