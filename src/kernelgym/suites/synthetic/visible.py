"""Rules that decide whether a defect of a broken kernel shows in the result.

A variant is written only if the problem's sizes, the style's blocks and the operations around it
make the defect show in the result (or, for a missing mask, make it reach beyond a tensor). The
labels are checked by judging samples in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelgym.suites.synthetic.operators import Array, Target, apply, can_slip, slip_value
from kernelgym.suites.synthetic.probe import sample, share_apart, tail_of
from kernelgym.suites.synthetic.spec import DotStage, ElementStep, MoveStage, RowsStage, Spec, Stage
from kernelgym.suites.synthetic.style import Defect, Style, row_geometry

_SHARE = 0.15
_CALLS = 3
"""Smallest number of calls on which a kernel is judged."""


def steps_of(stage: Stage) -> tuple[ElementStep, ...]:
    """Return all element-wise steps of a stage of a Synthetic problem."""
    return (*stage.before, *stage.after) if isinstance(stage, RowsStage) else stage.after


def slips_that_show(spec: Spec, stage: Stage, language: Target) -> list[int]:
    """Return the numbers of the steps of a stage whose wrong constant shows in the result."""
    steps = steps_of(stage)
    found = [
        number
        for number, step in enumerate(steps)
        if can_slip(step, language) and _slip_shows(spec, stage, number)
    ]
    if isinstance(stage, MoveStage) and stage.kind == "roll" and not steps:
        found.append(0)
    if isinstance(stage, RowsStage) and stage.tail == "mean":
        found.append(-1)
    return found


def _slip_shows(spec: Spec, stage: Stage, slip: int) -> bool:
    draws = {tensor.name: tensor.draw for tensor in spec.inputs}
    source = stage.left if isinstance(stage, DotStage) else stage.source
    draw = draws.get(source, "normal") if isinstance(stage, RowsStage) else "normal"
    count = len(stage.before) if isinstance(stage, RowsStage) else 0
    steps = steps_of(stage)

    def run(wrong: int) -> Array:
        value = _chain(sample(draw, 0), steps[:count], 0, wrong)
        if isinstance(stage, RowsStage):
            value = tail_of(stage.tail, value)
        return _chain(value, steps[count:], count, wrong)

    with np.errstate(all="ignore"):
        return share_apart(run(slip), run(-1)) >= _SHARE


def _chain(value: Array, steps: Sequence[ElementStep], first: int, wrong: int) -> Array:
    for number, step in enumerate(steps, first):
        if number == wrong:
            value = slip_value(step, value)
        else:
            second = sample("normal", 1 + number, step.spread) if step.operand else None
            value = apply(step, value, second)
    return value


def axis_shows(spec: Spec, stage: Stage) -> bool:
    """Return True if working along another axis stays in bounds and gives another result."""
    if isinstance(stage, DotStage):
        return stage.n != "1"
    if isinstance(stage, MoveStage):
        return stage.kind in ("transpose", "swap_last", "flip", "roll")
    spreads = {step.spread for step in steps_of(stage)}
    if stage.tail:
        return not stage.weights and not spreads & {"row", "col"}
    cols = spec.size(stage.shape[-1])
    return "row" in spreads and 1 < spec.elements(stage.shape) // cols <= cols


def shows(spec: Spec, stage: Stage, style: Style, language: Target) -> bool:
    """Return True if a style's defect shows, given the style's blocks."""
    match style.defect:
        case Defect.MISSING_MASK:
            return _missing_mask_shows(spec, stage, style)
        case Defect.NO_BOUNDS_CHECK:
            return _early_stop_shows(spec, stage, style, language)
        case Defect.MISSING_LOOP:
            return _missing_loop_shows(spec, stage, style, language)
        case _:
            return True


def _missing_mask_shows(spec: Spec, stage: Stage, style: Style) -> bool:
    """Return True if an access without a mask reaches beyond the end of a tensor."""
    if isinstance(stage, DotStage):
        return spec.size(stage.m) % style.lanes != 0 or spec.size(stage.k) % style.block != 0
    if isinstance(stage, RowsStage) and stage.tail:
        lanes, length, _ = row_geometry(spec, stage)
        return length % style.block != 0 or lanes % style.lanes != 0
    total = spec.elements(stage.out_shape)
    cols = spec.size(stage.shape[-1])
    match style.skeleton:
        case "flat":
            return total % style.block != 0
        case "row":
            return cols % style.block != 0
        case "tile":
            return cols % style.block != 0 or (total // cols) % style.lanes != 0
        case _:
            return total % (style.block * style.repeats) != 0


def _early_stop_shows(spec: Spec, stage: Stage, style: Style, language: Target) -> bool:
    """Return True if leaving out the last, partial block leaves elements unwritten."""
    if isinstance(stage, DotStage):
        lines = spec.size(stage.m)
        if language == "cpp":
            lines *= spec.size(stage.batch) if stage.batch else 1
            return lines % 8 != 0 and (stage.n == "1" or spec.size(stage.n) % 8 != 0)
        return style.skeleton != "row" and _partial(lines, style.lanes)
    cols = spec.size(stage.shape[-1])
    total = spec.elements(stage.out_shape)
    if isinstance(stage, RowsStage) and stage.tail:
        lanes, _, _ = row_geometry(spec, stage)
        if language == "cpp":
            return lanes % 2 != 0 and lanes > 1
        return style.skeleton in ("tile", "tile_loop") and _partial(lanes, style.lanes)
    if language == "cpp":
        nested = isinstance(stage, RowsStage) and style.skeleton in ("row", "tile")
        return (cols if nested else total) % 32 != 0
    if style.skeleton in ("row", "tile"):
        return _partial(cols, style.block)
    return _partial(total, style.block * (style.repeats if style.skeleton == "loop" else 1))


def _partial(n: int, block: int) -> bool:
    return n > block and n % block != 0


def _missing_loop_shows(spec: Spec, stage: Stage, style: Style, language: Target) -> bool:
    """Return True if a stage has a loop, and only its first turn gives another result."""
    if isinstance(stage, DotStage):
        return language == "triton" and spec.size(stage.k) > style.block
    if isinstance(stage, RowsStage) and stage.tail:
        lanes, length, _ = row_geometry(spec, stage)
        reach = style.block
        if language == "cpp":
            if stage.tail in ("cumsum", "reverse_cumsum"):
                return False
            reach = length // 2
        elif style.skeleton not in ("loop", "tile_loop"):
            return False
        if stage.tail in ("max", "min"):
            # The extreme may lie in the first block: it must not do so everywhere.
            return (reach / length) ** (lanes * _CALLS) < 1e-6
        return length > reach
    if language == "cpp":
        return False
    if style.skeleton == "row":
        return spec.size(stage.shape[-1]) > style.block
    return style.skeleton == "loop" and spec.elements(stage.out_shape) > style.block
