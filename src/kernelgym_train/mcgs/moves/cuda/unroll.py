"""`unroll`: lets the compiler repeat the bodies of a CUDA kernel's innermost loops."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import with_lines_before
from kernelgym_train.mcgs.cpp.syntax import text_of, walk
from kernelgym_train.mcgs.cuda.text import CudaKernel, read_cuda
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_TIMES = (4, 8, 2, 16)


def innermost(kernel: CudaKernel) -> list[Node]:
    """Return the innermost loops of a CUDA kernel that have no directive."""
    loops = [each for each in walk(kernel.body) if each.type == "for_statement"]
    return [
        loop
        for loop in loops
        if sum(each.type == "for_statement" for each in walk(loop)) == 1
        and "pragma" not in _before(loop)
    ]


def _before(loop: Node) -> str:
    above = loop.prev_sibling
    return text_of(above) if above is not None and above.type == "preproc_call" else ""


@extension_move("exact", phase=60, weight=0.8, language="cuda")
def unroll(cpp: str) -> Iterator[ChangedText]:
    """Repeat the body of an innermost loop, so that loads of several iterations overlap.

    Yields each number of repetitions, for the innermost loops of each kernel.
    """
    for name, kernel in read_cuda(cpp).kernels.items():
        loops = innermost(kernel)
        for times in _TIMES if loops else ():
            lines = [(loop, f"#pragma unroll {times}") for loop in loops]
            yield ChangedText(f"loops of {name}", f"{times} times", with_lines_before(cpp, lines))
