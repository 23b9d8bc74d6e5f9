"""`swap_thread_axes`: lets the threads of a warp walk along the other axis of a matrix.

Threads that differ by one in ``threadIdx.x`` run together. If they access elements that lie a row
apart, each needs a memory transaction of its own; with x and y swapped they share one.
"""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.cpp.syntax import text_of, walk
from kernelgym_train.mcgs.cuda.text import CudaKernel, CudaLaunch, CudaText, index_axis, read_cuda
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_OTHER = {"x": "y", "y": "x"}


@extension_move("exact", phase=10, weight=1.5, language="cuda")
def swap_thread_axes(cpp: str) -> Iterator[ChangedText]:
    """Swap x and y of threads and blocks, so that neighbouring threads access neighbours in memory.

    Yields the swap for each kernel with indices along x and y.
    """
    text = read_cuda(cpp)
    for name, kernel in text.kernels.items():
        launch = text.only_launch(name)
        indices = _indices(kernel)
        if launch is None or {axis for _, axis in indices} != {"x", "y"}:
            continue
        sizes = _sizes(text, launch)
        if sizes is not None:
            edits = [(node, text_of(node)[:-1] + _OTHER[axis]) for node, axis in indices]
            yield ChangedText(name, "x and y", replaced(cpp, [*edits, *sizes]))


def _indices(kernel: CudaKernel) -> list[tuple[Node, str]]:
    found = [(each, index_axis(each)) for each in walk(kernel.body)]
    return [(each, axis[1]) for each, axis in found if axis is not None]


def _sizes(text: CudaText, launch: CudaLaunch) -> list[tuple[Node, str]] | None:
    """Return edits that swap x and y of a CUDA launch; None if other launches share its sizes."""
    if len(launch.grid) < 2 or len(launch.block) < 2:
        return None
    others = {
        each.start_byte
        for other in text.launches
        if other is not launch
        for each in (*other.grid, *other.block)
    }
    found: list[tuple[Node, str]] = []
    for x, y, *_ in (launch.grid, launch.block):
        if x.start_byte in others or y.start_byte in others:
            return None
        found += [(x, text_of(y)), (y, text_of(x))] if text_of(x) != text_of(y) else []
    return found
