"""Style of a kernel: skeleton, block sizes, names, argument order; and its intended defect.

A `Style` is drawn for one stage from the problem's sizes and a seed. Block sizes are powers of two
chosen so that a launch under the interpreter has a handful of programs and yet more than one block.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from kernelgym.suites.synthetic.spec import DotStage, MoveStage, RowsStage, Spec, Stage

Skeleton: TypeAlias = Literal["flat", "row", "tile", "loop", "tile_loop"]
"""Skeleton of a kernel: what one program handles: a block of elements, a row, a two-dimensional
tile, or a loop over blocks."""

_SMALL = 200_000
"""Number of elements below which a problem is meant for Triton's interpreter."""


class Defect(StrEnum):
    """Kind of mistake in a broken kernel."""

    MISSING_MASK = "missing_mask"
    NAME_ERROR = "name_error"
    WRONG_CONSTANT = "wrong_constant"
    WRONG_AXIS = "wrong_axis"
    NO_BOUNDS_CHECK = "no_bounds_check"
    TYPE_SLIP = "type_slip"
    MISSING_LOOP = "missing_loop"
    MISSING_STEP = "missing_step"


@dataclass(frozen=True, slots=True)
class KernelNames:
    """Identifiers that a kernel's text uses, as one author would choose them."""

    pid: str
    offs: str
    mask: str
    value: str
    block: str
    count: str
    length: str
    pointer: str
    """Format of the names of pointers."""


_NAMES = (
    KernelNames("pid", "offsets", "mask", "v", "BLOCK_SIZE", "n_elements", "n_cols", "{}_ptr"),
    KernelNames("program", "idx", "ok", "val", "BLOCK", "numel", "width", "p_{}"),
    KernelNames("block_id", "offs", "valid", "value", "BLOCK_N", "total", "length", "{}_pointer"),
    KernelNames("i_blk", "pos", "inside_mask", "cur", "TILE", "size", "row_len", "{}_base"),
)


@dataclass(frozen=True, slots=True)
class Style:
    """Style in which one stage of a kernel is written."""

    function: str
    """Name of the host function, from which the kernel's name is made."""
    skeleton: Skeleton
    names: KernelNames
    block: int
    """Block size along the axis that the stage works on; for a product, along k."""
    lanes: int
    """Block size across that axis; for a product, along m and n."""
    repeats: int = 2
    """Number of blocks that one program handles in a flat loop."""
    out_first: bool = False
    reverse: bool = False
    """Whether extra operands come in reverse order."""
    defect: Defect | None = None
    """Defect of a kernel that is wrong on purpose."""
    slip: int = -1
    """Number of the step whose constant is wrong; negative for none, or for the tail's."""


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


def row_geometry(spec: Spec, stage: RowsStage) -> tuple[int, int, int]:
    """Return (lanes, length, inner) of the work along a stage's axis."""
    axis = stage.axis % len(stage.shape)
    length = spec.size(stage.shape[axis])
    inner = spec.elements(stage.shape[axis + 1 :])
    return spec.elements(stage.shape) // length, length, inner


def skeletons(spec: Spec, stage: Stage) -> tuple[Skeleton, ...]:
    """Return the kernel skeletons that suit a stage of a Synthetic problem."""
    if isinstance(stage, DotStage):
        if stage.n == "1":
            return ("loop",) if spec.size(stage.m) < 1000 else ("row", "loop")
        return ("tile", "flat")
    if isinstance(stage, MoveStage):
        return ("flat", "tile") if stage.kind in ("transpose", "swap_last") else ("flat", "loop")
    small = spec.elements(stage.shape) < _SMALL
    lanes, length, inner = row_geometry(spec, stage)
    if not stage.tail:
        if len(stage.shape) == 1:
            return ("flat", "loop")
        rows = spec.elements(stage.shape[:-1])
        return ("flat", "loop", "tile", *(("row",) if not small or rows <= 8 else ()))
    # A whole row in one tile must fit; a program per lane must not mean hundreds of programs.
    found: list[Skeleton] = ["tile_loop"]
    if length <= 512:
        found.append("tile")
    if inner == 1 and (not small or lanes <= 9):
        found += ["row", "loop"]
    return tuple(found)


def draw_style(rng: random.Random, spec: Spec, stage: Stage, function: str) -> Style:
    """Draw the style in which a stage is written."""
    skeleton = rng.choice(skeletons(spec, stage))
    if isinstance(stage, DotStage):
        block, lanes = _dot_blocks(rng, spec, stage)
    elif isinstance(stage, RowsStage) and stage.tail:
        block, lanes = _row_blocks(rng, spec, stage, skeleton)
    else:
        block, lanes = _flat_blocks(rng, spec, stage, skeleton)
    names, out_first, reverse = rng.choice(_NAMES), rng.random() < 0.25, rng.random() < 0.3
    return Style(function, skeleton, names, block, lanes, out_first=out_first, reverse=reverse)


def _flat_blocks(
    rng: random.Random, spec: Spec, stage: RowsStage | MoveStage, skeleton: Skeleton
) -> tuple[int, int]:
    total = spec.elements(stage.out_shape)
    cols = spec.size(stage.shape[-1])
    rows = spec.size(stage.shape[-2]) if isinstance(stage, MoveStage) else total // cols
    if skeleton in ("row", "tile"):
        if total >= _SMALL:
            return (rng.choice((512, 1024)), 1) if skeleton == "row" else (64, 32)
        # Half a row, so that there is a second block; about half of the rows.
        return min(power_of_two(cols) // 2, 128), max(power_of_two(rows) // 2, 1)
    if total >= _SMALL:
        return rng.choice((1024, 2048)), 1
    whole = power_of_two(total)
    return max(rng.choice((whole // 4, whole // 8)), 16), 1


def _row_blocks(
    rng: random.Random, spec: Spec, stage: RowsStage, skeleton: Skeleton
) -> tuple[int, int]:
    lanes, length, _ = row_geometry(spec, stage)
    whole = power_of_two(length)
    small = spec.elements(stage.shape) < _SMALL
    if skeleton in ("row", "tile"):
        block = whole
    else:
        block = max(
            min(rng.choice((whole // 2, whole // (2 if len(spec.stages) > 1 else 4))), 1024), 2
        )
    if skeleton in ("row", "loop"):
        return block, 1
    if not small:
        block = min(block, 64) if skeleton == "tile_loop" else block
        return block, max(2, min(32, 4096 // block))
    parts = rng.choice((1, 2) if len(spec.stages) > 1 else (2, 4))
    return block, max(power_of_two(lanes) // parts, 1)


def _dot_blocks(rng: random.Random, spec: Spec, stage: DotStage) -> tuple[int, int]:
    small = spec.elements(stage.out_shape) * spec.size(stage.k) < _SMALL * 10
    if stage.n == "1":
        return (64, 16) if small else (128, 16)
    if not small:
        return 32, 64
    block = 32 if spec.size(stage.k) > 32 else 16
    # Blocks of a model of several kernels are large, so that all of it stays quick.
    wide = max(spec.size(stage.m), spec.size(stage.n)) > 24 or stage.batch or len(spec.stages) > 1
    return block, 32 if wide else 16
