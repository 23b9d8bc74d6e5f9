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
from kernelgym_train.mcgs.cuda.products import CudaOperand, CudaProduct, product_of
from kernelgym_train.mcgs.cuda.text import CudaLaunch, read_cuda
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move


@dataclass(frozen=True, slots=True)
class _Tile:
    """Rows, columns and depth of a block's tile, and rows and columns of a thread's."""

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
_KERNEL = """{{
  constexpr int ROWS = {rows}, COLS = {cols}, DEPTH = {depth};
  constexpr int OWN_ROWS = {own_rows}, OWN_COLS = {own_cols};
  constexpr int ACROSS = COLS / OWN_COLS, THREADS = ROWS / OWN_ROWS * ACROSS;
  __shared__ __align__(16) {number} left_tile[DEPTH][ROWS + 4];
  __shared__ __align__(16) {number} right_tile[DEPTH][COLS + 4];
  const int first_row = blockIdx.y * ROWS, first_col = blockIdx.x * COLS;
  const int own_row = threadIdx.x / ACROSS * 4, own_col = threadIdx.x % ACROSS * 4;
  {number} sums[OWN_ROWS][OWN_COLS] = {{}};
{constants}  for (int first_k = 0; first_k < {bound}; first_k += DEPTH) {{
    for (int at = threadIdx.x; at < ROWS * DEPTH; at += THREADS) {{
      const int inner_row = {left_inner}, inner_k = {left_k};
      const int {row} = first_row + inner_row, {k} = first_k + inner_k;
      left_tile[inner_k][inner_row] = {row} < {rows_bound} && {k} < {bound} ? {left} : 0;
    }}
    for (int at = threadIdx.x; at < COLS * DEPTH; at += THREADS) {{
      const int inner_col = {right_inner}, inner_k = {right_k};
      const int {col} = first_col + inner_col, {k} = first_k + inner_k;
      right_tile[inner_k][inner_col] = {col} < {cols_bound} && {k} < {bound} ? {right} : 0;
    }}
    __syncthreads();
    #pragma unroll
    for (int inner_k = 0; inner_k < DEPTH; ++inner_k) {{
      {number} left_own[OWN_ROWS], right_own[OWN_COLS];
      #pragma unroll
      for (int in_r = 0; in_r < OWN_ROWS; ++in_r)
        left_own[in_r] = left_tile[inner_k][own_row + in_r % 4 + in_r / 4 * (ROWS / OWN_ROWS * 4)];
      #pragma unroll
      for (int in_c = 0; in_c < OWN_COLS; ++in_c)
        right_own[in_c] = right_tile[inner_k][own_col + in_c % 4 + in_c / 4 * (ACROSS * 4)];
      #pragma unroll
      for (int in_r = 0; in_r < OWN_ROWS; ++in_r)
        #pragma unroll
        for (int in_c = 0; in_c < OWN_COLS; ++in_c)
          sums[in_r][in_c] += left_own[in_r] * right_own[in_c];
    }}
    __syncthreads();
  }}
  #pragma unroll
  for (int in_r = 0; in_r < OWN_ROWS; ++in_r) {{
    #pragma unroll
    for (int in_c = 0; in_c < OWN_COLS; ++in_c) {{
      const int {row} = first_row + own_row + in_r % 4 + in_r / 4 * (ROWS / OWN_ROWS * 4);
      const int {col} = first_col + own_col + in_c % 4 + in_c / 4 * (ACROSS * 4);
      if ({row} < {rows_bound} && {col} < {cols_bound}) {{
        const {number} {total} = sums[in_r][in_c];
{after}
      }}
    }}
  }}
}}"""
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
            edits = [(kernel.body, _body(product, tile)), *placed]
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
    """Return edits that launch one block a tile; None if the launch has another form."""
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


def _body(product: CudaProduct, tile: _Tile) -> str:
    """Return the kernel's new body."""
    left, right = product.left, product.right
    return _KERNEL.format(
        **{name: getattr(tile, name) for name in tile.__dataclass_fields__},
        number=product.number,
        constants="".join(f"  {text_of(each)}\n" for each in product.constants),
        bound=f"({product.depth})",
        rows_bound=product.rows,
        cols_bound=product.cols,
        **{"row": product.row, "col": product.col, "k": product.k, "total": product.total},
        left=_element(left),
        right=_element(right),
        # Neighbouring threads read neighbouring elements.
        left_inner="at / DEPTH" if left.is_k_near else "at % ROWS",
        left_k="at % DEPTH" if left.is_k_near else "at / ROWS",
        right_inner="at / DEPTH" if right.is_k_near else "at % COLS",
        right_k="at % DEPTH" if right.is_k_near else "at / COLS",
        after="\n".join(f"        {text_of(each)}" for each in product.after),
    )


def _element(operand: CudaOperand) -> str:
    return f"{operand.array}[{text_of(operand.subscript)}]"
