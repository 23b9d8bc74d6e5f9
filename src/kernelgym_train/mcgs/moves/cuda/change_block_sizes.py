"""`change_block_sizes`: sets the number of threads in a block of a CUDA kernel.

The number is changed where the text has it: in a constant that the launch names (``constexpr int``,
``const int``, ``#define``), or in the launch itself. The grid has to follow: it names the constant,
or holds the number or the number less one, which are changed as well. A kernel that holds the
launch's literal itself, or names a constant of that value, is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.cpp.syntax import identifiers, plain_text, text_of, walk
from kernelgym_train.mcgs.cuda.text import CudaConstant, CudaLaunch, CudaText, read_cuda
from kernelgym_train.mcgs.moves.definition import Risk
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

MOST_THREADS = 1024
_THREADS = (64, 128, 256, 512, 1024, 32)
_SIDES = (8, 16, 32)
_PAIRS = ((32, 8), (32, 4), (16, 16), (32, 32), (64, 4), (8, 32), (8, 8))
_TOGETHER = ("__shared__", "__shfl", "atomic", "__syncthreads")


@extension_move("reassociates", phase=30, weight=2.0, language="cuda")
def change_block_sizes(cpp: str) -> Iterator[ChangedText]:
    """Set the number of threads of a block.

    Yields each other number of threads.
    """
    text = read_cuda(cpp)
    for constant in text.constants.values():
        launches = [each for each in text.launches if _is_in(constant, each)]
        if not launches:
            continue
        risk = _risk(text, launches)
        for value in _choices(constant, launches):
            edits = [(constant.node, str(value))]
            edits += [
                edit
                for each in launches
                for edit in _followed(each.grid, constant.value, value)
                if edit[0].start_byte != constant.node.start_byte
            ]
            if all(_fits(_with_value(each, constant, value, text)) for each in launches):
                changed = replaced(text.text, _once(edits))
                yield ChangedText(constant.name, str(value), changed, risk)
    for launch in text.launches:
        yield from _literals(text, launch)


def _is_in(constant: CudaConstant, launch: CudaLaunch) -> bool:
    """Return True if a constant is the number of threads in a launch."""
    return any(_stands_for(size, constant) for size in launch.block)


def _stands_for(size: Node, constant: CudaConstant) -> bool:
    return text_of(size) == constant.name or size.start_byte == constant.node.start_byte


def _choices(constant: CudaConstant, launches: Sequence[CudaLaunch]) -> tuple[int, ...]:
    square = any(sum(_stands_for(x, constant) for x in each.block) > 1 for each in launches)
    return tuple(v for v in (_SIDES if square else _THREADS) if v != constant.value)


def _with_value(
    launch: CudaLaunch, constant: CudaConstant, value: int, text: CudaText
) -> int | None:
    """Return a launch's number of threads for another value of a constant; None if unknown."""
    sizes = [value if _stands_for(x, constant) else text.value(x) for x in launch.block]
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _fits(threads: int | None) -> bool:
    return threads is not None and 32 <= threads <= MOST_THREADS


def _literals(text: CudaText, launch: CudaLaunch) -> Iterator[ChangedText]:
    """Yield replacements of the literals in a launch's block size."""
    own = {each.node.start_byte for each in text.constants.values()}
    block = [each for each in launch.block if each.start_byte not in own]
    if not block or len(block) != len(launch.block) or text.only_launch(launch.kernel) is None:
        return
    values = [text.value(each) for each in block if each.type == "number_literal"]
    kernel = text.kernels[launch.kernel]
    written = {text_of(each) for each in walk(kernel.node) if each.type == "number_literal"}
    named = identifiers(kernel.body)
    written |= {str(each.value) for each in text.constants.values() if each.name in named}
    if len(values) != len(block) or None in values:
        return
    known = [value for value in values if value is not None]
    if written & {str(value - less) for value in known for less in (0, 1) if value > 8}:
        return
    choices: Sequence[tuple[int, ...]] = [(each,) for each in _THREADS]
    if len(known) == 2:
        choices = _PAIRS
    elif len(known) > 2:
        return
    for choice in choices:
        if list(choice) == known:
            continue
        edits = list[tuple[Node, str]]()
        for number, (node, before, after) in enumerate(zip(block, known, choice, strict=True)):
            edits.append((node, str(after)))
            edits += _followed(launch.grid[number : number + 1], before, after)
        risk = _risk(text, [launch])
        told = " by ".join(map(str, choice))
        yield ChangedText(
            f"threads of {kernel.name}", told, replaced(text.text, _once(edits)), risk
        )


def _followed(grid: Sequence[Node], before: int, after: int) -> list[tuple[Node, str]]:
    """Return edits of a grid's literals that repeat the number of threads of a block."""
    found = []
    for each in grid:
        for node in walk(each):
            if node.type == "number_literal" and plain_text(node).isdecimal() and before > 1:
                value = int(plain_text(node))
                if value in (before, before - 1) and value:
                    found.append((node, str(after - before + value)))
    return found


def _once(edits: Sequence[tuple[Node, str]]) -> list[tuple[Node, str]]:
    return list({node.start_byte: (node, new) for node, new in edits}.values())


def _risk(text: CudaText, launches: Sequence[CudaLaunch]) -> Risk:
    """Return the risk of another block size: ``exact`` if no thread depends on another."""
    bodies = [text_of(text.kernels[each.kernel].body) for each in launches]
    together = any(word in body for body in bodies for word in _TOGETHER)
    return "reassociates" if together else "exact"
