"""`register_block`: computes a product of matrices by tiles, in place of one element a thread.

A block of threads copies a tile of each operand to shared memory, and each thread keeps a tile of
sums in registers. The kernel's name, parameters and the expression that it stores stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.cuda.products import CudaProduct, product_of
from kernelgym_train.mcgs.cuda.text import CudaLaunch, read_cuda
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move
from kernelgym_train.mcgs.templates import filled


@dataclass(frozen=True, slots=True)
class _Tile:
    """Sizes of a product's tiles: rows, columns and depth a block, rows and columns a thread."""

    rows: int
    cols: int
    depth: int
    own_rows: int
    own_cols: int

    @property
    def threads(self) -> int:
        return self.rows // self.own_rows * (self.cols // self.own_cols)


_TILES = (
    _Tile(128, 128, 16, 8, 8),
    _Tile(64, 64, 16, 4, 4),
    _Tile(128, 64, 16, 8, 4),
    _Tile(64, 128, 16, 4, 8),
    _Tile(128, 128, 8, 8, 8),
    _Tile(32, 32, 32, 4, 4),
)
_TAKEN = frozenset(
    (
        *("ROWS", "COLS", "DEPTH", "OWN_ROWS", "OWN_COLS", "ACROSS", "THREADS", "left_tile"),
        *("right_tile", "first_row", "first_col", "first_k", "own_row", "own_col", "sums", "at"),
        *("inner_row", "inner_col", "inner_k", "left_own", "right_own", "in_r", "in_c"),
    )
)


@extension_move("reassociates", phase=5, weight=3.0, language="cuda", tried_first=True)
def register_block(cpp: str) -> Iterator[ChangedText]:
    """Keep tiles of both matrices in shared memory, and a tile of sums in each thread's registers.

    Yields each tile for each product.
    """
    text = read_cuda(cpp)
    for name, kernel in text.kernels.items():
        product = product_of(text, kernel)
        launch = text.only_launch(name)
        if product is None or launch is None or _TAKEN & {*_names(product), *text.constants}:
            continue
        for tile in _TILES:
            placed = _launched(product, launch, tile)
            if placed is None:
                continue
            edits = [
                (
                    kernel.body,
                    filled(
                        "register_block.cu.j2", product=product, tile=tile, text=text_of
                    ).strip(),
                ),
                *placed,
            ]
            yield ChangedText(
                name,
                f"{tile.rows} by {tile.cols} by {tile.depth}, {tile.threads} threads",
                replaced(cpp, edits),
            )


def _names(product: CudaProduct) -> set[str]:
    return {product.row, product.col, product.k, product.total, *_parameters(product)}


def _parameters(product: CudaProduct) -> list[str]:
    return [each.name for each in product.kernel.parameters]


def _launched(
    product: CudaProduct, launch: CudaLaunch, tile: _Tile
) -> list[tuple[Node, str]] | None:
    """Return edits that launch one block for each tile; None if the launch has another form."""
    names = _parameters(product)
    shared = [text_of(each) for each in launch.configuration[2:3]]
    if len(launch.arguments) != len(names) or shared not in ([], ["0"]):
        return None
    given = dict(zip(names, launch.arguments, strict=True))
    rows, cols = (text_of(given[name]) for name in (product.rows, product.cols))
    across = f"(int)((({cols}) + {tile.cols - 1}) / {tile.cols})"
    down = f"(int)((({rows}) + {tile.rows - 1}) / {tile.rows})"
    block = f"dim3({tile.cols // tile.own_cols} * {tile.rows // tile.own_rows})"
    grid, threads = launch.configuration[:2]
    return [(grid, f"dim3({across}, {down})"), (threads, block)]
