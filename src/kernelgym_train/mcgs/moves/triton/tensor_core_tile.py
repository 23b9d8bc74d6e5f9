"""`tensor_core_tile`: sets the whole tile of a product at once: blocks, warps and stages.

The parts of a tile depend on each other: a larger one needs more warps, and a deeper pipeline needs
smaller blocks. So a step at a time leads through slow kernels. The tiles listed here are common
for products on recent GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.moves.text_moves import ChangedText, triton_move
from kernelgym_train.mcgs.triton.knobs import knobs_of
from kernelgym_train.mcgs.triton.loops import tile_of
from kernelgym_train.mcgs.triton.module import TritonModule

_TILES = (
    (128, 128, 64, 8, 4),
    (128, 256, 64, 8, 3),
    (128, 64, 32, 4, 4),
    (128, 128, 32, 8, 3),
    (64, 128, 32, 4, 4),
    (64, 64, 64, 4, 4),
    (64, 64, 32, 4, 3),
    (64, 256, 32, 8, 4),
)
"""Tiles of a Triton matrix product, as (rows, columns, depth, warps, stages)."""


@triton_move("reassociates", phase=28, weight=4.0, tried_first=True)
def tensor_core_tile(module: TritonModule) -> Iterator[ChangedText]:
    """Set the whole tile of a product at once: its blocks, warps and stages.

    Yields each tile for each function that computes one by ``tl.dot``.
    """
    knobs = knobs_of(module)
    for function in module.functions.values():
        tile = tile_of(function)
        if tile is None:
            continue
        names = (*tile, "num_warps", "num_stages")
        own = {knob.name: knob for knob in knobs if knob.function == function.name}
        if not all(name in own and (own[name].literals or own[name].calls) for name in names):
            continue
        for sizes in _TILES:
            edits = [
                edit
                for name, size in zip(names, sizes, strict=True)
                for edit in own[name].edits(module, size)
            ]
            if len({span for span, text in edits if span[0] != span[1]}) < sum(
                span[0] != span[1] for span, _ in edits
            ):
                break  # two sizes are one literal
            rows, columns, depth, warps, stages = sizes
            text = module.spliced(edits)
            yield ChangedText(
                function.name,
                f"{rows} by {columns} by {depth}, {warps} warps, {stages} stages",
                text,
            )
