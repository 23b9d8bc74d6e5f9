"""Triton kernels without an axis to work along: element-wise chains and rearrangements.

Skeletons: one block of elements a program (`flat`), several (`loop`), one row (`row`) and a
two-dimensional tile (`tile`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelgym.suites.synthetic.spec import MoveStage, RowsStage, Spec, Spread
from kernelgym.suites.synthetic.style import Defect, Style
from kernelgym.suites.synthetic.triton_parts import (
    OperandPlace,
    Part,
    argument,
    chain_lines,
    indent,
    load,
    pad_value,
    part,
    store,
)

__all__ = ["write_move", "write_pointwise"]


def write_pointwise(spec: Spec, stage: RowsStage, style: Style, slip: int = -1) -> Part:
    """Write an element-wise chain."""
    names = style.names
    steps = (*stage.before, *stage.after)
    spreads = {step.spread for step in steps}
    x = argument(stage.source)
    scalars = {names.count: f"{x}.numel()"}
    if spreads & {"row", "col"} or style.skeleton in ("row", "tile"):
        scalars[names.length] = f"{x}.shape[-1]"
    mask = names.mask

    def work(at: str, row: str, col: str, row_mask: str, col_mask: str) -> list[str]:
        places: dict[Spread, OperandPlace] = {
            "full": OperandPlace(at, mask),
            "row": OperandPlace(col, col_mask),
            "col": OperandPlace(row, row_mask),
        }
        if style.defect is Defect.WRONG_AXIS:
            places["row"] = places["col"]
        first = load(style, stage.source, OperandPlace(at, mask), pad_value(steps))
        return [
            f"{names.value} = {first}",
            *chain_lines(style, steps, places, slip),
            store(style, "out", OperandPlace(at, mask), names.value),
        ]

    if style.skeleton in ("flat", "loop"):
        index = (f"({names.offs} // {names.length})", f"({names.offs} % {names.length})")
        return _flat(
            stage, style, scalars, work(names.offs, *index, mask, mask), f"torch.empty_like({x})"
        )
    if style.skeleton == "row":
        return _by_row(stage, style, scalars, work(names.offs, "row", "col", "", mask))
    index = ("row[:, None]", "col[None, :]")
    return _tile(
        stage, style, scalars, work(names.offs, *index, "row_ok[:, None]", "col_ok[None, :]")
    )


def _flat(
    stage: RowsStage | MoveStage,
    style: Style,
    scalars: dict[str, str],
    lines: Sequence[str],
    out: str,
) -> Part:
    n = style.names
    round_up = f"triton.cdiv({n.count}, {{}})"
    if style.defect is Defect.NO_BOUNDS_CHECK:
        round_up = f"{n.count} // {{}}"
    if style.skeleton == "flat":
        body = [
            f"{n.pid} = tl.program_id(0)",
            f"{n.offs} = {n.pid} * {n.block} + tl.arange(0, {n.block})",
            f"{n.mask} = {n.offs} < {n.count}",
            *lines,
        ]
        grid = f"({round_up.format(style.block)},)"
        return part(stage, style, body, scalars, {n.block: style.block}, grid, out)
    inner = [
        f"{n.offs} = start + i * {n.block} + tl.arange(0, {n.block})",
        f"{n.mask} = {n.offs} < {n.count}",
        *lines,
    ]
    loop = ["for i in range(REPEATS):", *indent(inner)]
    if style.defect is Defect.MISSING_LOOP:
        loop = ["i = 0", *inner]
    body = [
        f"{n.pid} = tl.program_id(0)",
        f"start = {n.pid} * {n.block} * REPEATS",
        *loop,
    ]
    grid = f"({round_up.format(style.block * style.repeats)},)"
    constants = {n.block: style.block, "REPEATS": style.repeats}
    return part(stage, style, body, scalars, constants, grid, out)


def _by_row(stage: RowsStage, style: Style, scalars: dict[str, str], lines: Sequence[str]) -> Part:
    n = style.names
    inner = [
        f"col = start + tl.arange(0, {n.block})",
        f"{n.mask} = col < {n.length}",
        f"{n.offs} = row * {n.length} + col",
        *lines,
    ]
    loop = [f"for start in range(0, {n.length}, {n.block}):", *indent(inner)]
    if style.defect is Defect.MISSING_LOOP:
        loop = ["start = 0", *inner]
    if style.defect is Defect.NO_BOUNDS_CHECK:
        loop[0] = f"for start in range(0, {n.length} // {n.block} * {n.block}, {n.block}):"
    body = ["row = tl.program_id(0)", *loop]
    del scalars[n.count]
    x = argument(stage.source)
    grid = f"({x}.numel() // {n.length},)"
    return part(stage, style, body, scalars, {n.block: style.block}, grid, f"torch.empty_like({x})")


def _tile(stage: RowsStage, style: Style, scalars: dict[str, str], lines: Sequence[str]) -> Part:
    n = style.names
    x = argument(stage.source)
    scalars = {"rows": f"{x}.numel() // {x}.shape[-1]", n.length: scalars[n.length]}
    body = [
        "row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)",
        f"col = tl.program_id(1) * {n.block} + tl.arange(0, {n.block})",
        "row_ok = row < rows",
        f"col_ok = col < {n.length}",
        f"{n.offs} = row[:, None] * {n.length} + col[None, :]",
        f"{n.mask} = row_ok[:, None] & col_ok[None, :]",
        *lines,
    ]
    across = f"triton.cdiv({n.length}, {style.block})"
    if style.defect is Defect.NO_BOUNDS_CHECK:
        across = f"{n.length} // {style.block}"
    grid = f"(triton.cdiv(rows, {style.lanes}), {across})"
    constants = {"ROWS": style.lanes, n.block: style.block}
    return part(stage, style, body, scalars, constants, grid, f"torch.empty_like({x})")


def write_move(spec: Spec, stage: MoveStage, style: Style, slip: int = -1) -> Part:
    """Write a rearrangement: each element of the result looks up where it comes from."""
    n = style.names
    if style.skeleton == "tile":
        return _tiled_transpose(stage, style, slip)
    x, index = argument(stage.source), argument(stage.index)
    at = n.offs
    scalars = {n.length: f"{x}.shape[-1]"}
    shift = stage.shift + 1 if slip == 0 and not stage.after else stage.shift
    lines: list[str] = []
    wrong = style.defect is Defect.WRONG_AXIS
    match stage.kind:
        case "transpose":
            scalars["rows"] = f"{x}.shape[0]"
            source = f"({at} % rows) * {n.length} + {at} // rows"
            out = f"torch.empty(({x}.shape[1], {x}.shape[0]), device={x}.device, dtype={x}.dtype)"
        case "swap_last":
            scalars["rows"] = f"{x}.shape[1]"
            lines = [
                f"plane = {at} // (rows * {n.length})",
                f"inner = {at} % (rows * {n.length})",
            ]
            source = f"plane * rows * {n.length} + (inner % rows) * {n.length} + inner // rows"
            out = (
                f"torch.empty(({x}.shape[0], {x}.shape[2], {x}.shape[1]), "
                f"device={x}.device, dtype={x}.dtype)"
            )
        case "flip":
            source = f"{at} // {n.length} * {n.length} + {n.length} - 1 - {at} % {n.length}"
            if wrong:
                source = f"{n.count} - 1 - {at}"
            out = f"torch.empty_like({x})"
        case "roll":
            step = f"({at} % {n.length} + {n.length} - {shift}) % {n.length}"
            source = f"{at} // {n.length} * {n.length} + {step}"
            if wrong:
                source = f"({at} + {n.count} - {shift}) % {n.count}"
            out = f"torch.empty_like({x})"
        case "select_rows":
            picked = load(style, stage.index, OperandPlace(f"{at} // {n.length}", n.mask), "0")
            lines = [f"picked = {picked}"]
            source = f"picked * {n.length} + {at} % {n.length}"
            out = (
                f"torch.empty(({index}.shape[0], {x}.shape[1]), device={x}.device, dtype={x}.dtype)"
            )
        case _:
            scalars["picks"] = f"{index}.shape[-1]"
            where = f"{at} % picks" if stage.kind == "select_cols" else at
            lines = [f"picked = {load(style, stage.index, OperandPlace(where, n.mask), '0')}"]
            source = f"{at} // picks * {n.length} + picked"
            out = (
                f"torch.empty(({x}.shape[0], {index}.shape[-1]), "
                f"device={x}.device, dtype={x}.dtype)"
            )
    if wrong and stage.kind in ("transpose", "swap_last"):
        source = at
    last = "picks" if "picks" in scalars else n.length
    places: dict[Spread, OperandPlace] = {
        "full": OperandPlace(at, n.mask),
        "row": OperandPlace(f"({at} % {last})", n.mask),
    }
    lines += [
        f"source = {source}",
        f"{n.value} = {load(style, stage.source, OperandPlace('source', n.mask))}",
        *chain_lines(style, stage.after, places, slip),
        store(style, "out", OperandPlace(at, n.mask), n.value),
    ]
    return _flat(stage, style, {n.count: "out.numel()", **scalars}, lines, out)


def _tiled_transpose(stage: MoveStage, style: Style, slip: int) -> Part:
    n = style.names
    x = argument(stage.source)
    batched = stage.kind == "swap_last"
    body = [
        "row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)",
        f"col = tl.program_id(1) * {n.block} + tl.arange(0, {n.block})",
        f"{n.mask} = (row[:, None] < rows) & (col[None, :] < {n.length})",
        f"{n.offs} = row[:, None] * {n.length} + col[None, :]",
        "moved = col[None, :] * rows + row[:, None]",
    ]
    if style.defect is Defect.WRONG_AXIS:
        body[-1] = f"moved = {n.offs}"
    if batched:
        plane = f"tl.program_id(2) * rows * {n.length}"
        body += [f"{n.offs} += {plane}", f"moved += {plane}"]
    body += [
        f"{n.value} = {load(style, stage.source, OperandPlace(n.offs, n.mask))}",
        *chain_lines(style, stage.after, {}, slip),
        store(style, "out", OperandPlace("moved", n.mask), n.value),
    ]
    scalars = {"rows": f"{x}.shape[-2]", n.length: f"{x}.shape[-1]"}
    across = f"triton.cdiv({n.length}, {style.block})"
    if style.defect is Defect.NO_BOUNDS_CHECK:
        across = f"{n.length} // {style.block}"
    grid = f"(triton.cdiv(rows, {style.lanes}), {across}{f', {x}.shape[0]' if batched else ''})"
    shape = (
        f"({x}.shape[0], {x}.shape[2], {x}.shape[1])"
        if batched
        else f"({x}.shape[1], {x}.shape[0])"
    )
    out = f"torch.empty({shape}, device={x}.device, dtype={x}.dtype)"
    constants = {"ROWS": style.lanes, n.block: style.block}
    return part(stage, style, body, scalars, constants, grid, out)
