"""Which sizes of a Triton kernel are too large to be tried on a GPU."""

from __future__ import annotations

import pytest

from benchmarks.search.gpu_kernels import OWN_TASKS
from kernelgym_train.mcgs.triton.limits import fits
from kernelgym_train.mcgs.triton.module import read_module

MATMUL, SOFTMAX = (OWN_TASKS[name][1].source for name in ("matmul_fp32", "softmax"))
TILE = "BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,\n            num_warps=1, num_stages=1"


def tiled(rows: int, columns: int, depth: int, warps: int, stages: int = 1) -> str:
    """Return the product with other sizes."""
    assert TILE in MATMUL
    sizes = f"BLOCK_M={rows}, BLOCK_N={columns}, BLOCK_K={depth}"
    return MATMUL.replace(TILE, f"{sizes}, num_warps={warps}, num_stages={stages}")


@pytest.mark.parametrize(
    ("sizes", "item_bytes", "right"),
    [
        pytest.param((128, 128, 32, 4), 4, True, id="4096 products a thread"),
        pytest.param((128, 128, 64, 4), 4, False, id="8192 products a thread"),
        pytest.param((64, 128, 256, 2), 4, False, id="took over a minute to compile"),
        pytest.param((64, 128, 256, 2), 2, True, id="halves are multiplied by tensor cores"),
        pytest.param((256, 256, 16, 8), 2, True, id="256 sums a thread"),
        pytest.param((256, 256, 16, 4), 2, False, id="512 sums a thread"),
        pytest.param((128, 256, 64, 8, 4), 2, True, id="147456 bytes of buffers"),
        pytest.param((128, 256, 64, 8, 6), 2, False, id="245760 bytes of buffers"),
    ],
)
def test_tiles(sizes: tuple[int, ...], item_bytes: int, right: bool) -> None:
    assert fits(read_module(tiled(*sizes)), item_bytes) is right


@pytest.mark.parametrize(
    ("precision", "right"),
    [
        ('input_precision="tf32"', True),
        ("allow_tf32=True", True),
        ("allow_tf32=False", False),
    ],
)
def test_tf32_is_computed_by_tensor_cores(precision: str, right: bool) -> None:
    source = tiled(64, 128, 256, 2).replace('input_precision="ieee"', precision)
    assert fits(read_module(source), 4) is right


@pytest.mark.parametrize(("block", "right"), [(65536, True), (131072, False)])
def test_vectors_of_a_block(block: int, right: bool) -> None:
    source = SOFTMAX.replace("BLOCK=128, num_warps=4", f"BLOCK={block}, num_warps=4")
    assert source != SOFTMAX and fits(read_module(source)) is right


@pytest.mark.parametrize(("side", "right"), [(256, True), (512, False)])
def test_square_tiles(side: int, right: bool) -> None:
    source = MATMUL.replace("BLOCK_N", "BLOCK_M")
    source = source.replace("BLOCK_M: tl.constexpr, BLOCK_M: tl", "BLOCK_M: tl")
    sizes = f"BLOCK_M={side}, BLOCK_K=16, num_warps=4"
    source = source.replace(TILE.replace("BLOCK_N", "BLOCK_M"), sizes)
    assert f"BLOCK_M={side}, BLOCK_K" in source and fits(read_module(source)) is right
