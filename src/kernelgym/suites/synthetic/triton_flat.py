"""Triton kernels without an axis to work along: element-wise chains and rearrangements.

Skeletons: one block of elements a program (`flat`), several (`loop`), one row (`row`) and a
two-dimensional tile (`tile`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelgym.suites.synthetic.operators import pad_value
from kernelgym.suites.synthetic.spec import MoveStage, RowsStage, Spec, Spread
from kernelgym.suites.synthetic.style import Defect, Style
from kernelgym.suites.synthetic.triton_parts import Place, StageText, TritonWriter, argument


def write_pointwise(spec: Spec, stage: RowsStage, style: Style) -> StageText:
    """Return the Triton kernel of an element-wise chain."""
    w, n = TritonWriter(stage, style), style.names
    length = {n.length: f"{w.x}.shape[-1]"}
    whole: Place = (n.offs, n.mask)
    match style.skeleton:
        case "row":
            row, col = ("row", ""), ("col", n.mask)
        case "tile":
            row, col = ("row[:, None]", "row_ok[:, None]"), ("col[None, :]", "col_ok[None, :]")
        case _:
            row = (f"({n.offs} // {n.length})", n.mask)
            col = (f"({n.offs} % {n.length})", n.mask)
    if style.defect is Defect.WRONG_AXIS:
        col = row
    lines = [
        f"{w.value} = {w.load(stage.source, whole, pad_value(stage.before))}",
        *w.chain(stage.before, {"full": whole, "row": col, "col": row}),
        w.store(whole),
    ]
    if style.skeleton == "row":
        return _by_row(w, length, lines)
    if style.skeleton == "tile":
        body = [
            *_tile_of(w),
            "row_ok = row < rows",
            f"col_ok = col < {n.length}",
            f"{n.offs} = row[:, None] * {n.length} + col[None, :]",
            f"{n.mask} = row_ok[:, None] & col_ok[None, :]",
            *lines,
        ]
        return _tiled(w, body, {"rows": f"{w.x}.numel() // {w.x}.shape[-1]", **length})
    by_axis = any(step.spread in ("row", "col") for step in stage.before)
    return _flat(w, {n.count: f"{w.x}.numel()", **(length if by_axis else {})}, lines)


def _flat(
    w: TritonWriter, scalars: Mapping[str, str], lines: Sequence[str], out: str = ""
) -> StageText:
    """Return a Triton kernel that handles elements in their order in memory."""
    n, style = w.names, w.style
    looped = style.skeleton != "flat"
    start = "start + i" if looped else n.pid
    work = [
        f"{n.offs} = {start} * {n.block} + tl.arange(0, {n.block})",
        f"{n.mask} = {n.offs} < {n.count}",
        *lines,
    ]
    body = [f"{n.pid} = tl.program_id(0)", *work]
    constants, reach = {n.block: style.block}, style.block
    if looped:
        start = f"start = {n.pid} * {n.block} * REPEATS"
        body = [body[0], start, *w.loop("i", "REPEATS", work)]
        constants["REPEATS"] = style.repeats
        reach *= style.repeats
    return w.finish(body, scalars, constants, [w.blocks(n.count, reach)], out)


def _by_row(w: TritonWriter, scalars: Mapping[str, str], lines: Sequence[str]) -> StageText:
    """Return a kernel of which each program handles one row, block after block."""
    n = w.names
    work = [
        f"col = start + tl.arange(0, {n.block})",
        f"{n.mask} = col < {n.length}",
        f"{n.offs} = row * {n.length} + col",
        *lines,
    ]
    end = n.length
    if w.style.defect is Defect.NO_BOUNDS_CHECK:
        end = f"{n.length} // {n.block} * {n.block}"
    body = ["row = tl.program_id(0)", *w.loop("start", f"0, {end}, {n.block}", work)]
    return w.finish(body, scalars, {n.block: w.style.block}, [f"{w.x}.numel() // {n.length}"])


def _tile_of(w: TritonWriter) -> list[str]:
    """Return the lines that compute the rows and columns of a program's tile."""
    block = w.names.block
    return [
        "row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)",
        f"col = tl.program_id(1) * {block} + tl.arange(0, {block})",
    ]


def _tiled(
    w: TritonWriter,
    body: Sequence[str],
    scalars: Mapping[str, str],
    planes: Sequence[str] = (),
    out: str = "",
) -> StageText:
    """Return a kernel of which each program handles a tile of rows and columns."""
    style = w.style
    across = w.blocks(w.names.length, style.block)
    grid = [f"triton.cdiv(rows, {style.lanes})", across, *planes]
    return w.finish(body, scalars, {"ROWS": style.lanes, w.names.block: style.block}, grid, out)


def write_move(spec: Spec, stage: MoveStage, style: Style) -> StageText:
    """Return the Triton kernel of a rearrangement: each result element looks up its source."""
    w, n = TritonWriter(stage, style), style.names
    x, index, at, length = w.x, argument(stage.index), n.offs, n.length
    transposes = stage.kind in ("transpose", "swap_last")
    planes = [f"{x}.shape[0]"] if stage.kind == "swap_last" else []
    last = len(planes) + 1
    transposed = w.empty(*planes, f"{x}.shape[{last}]", f"{x}.shape[{last - 1}]")
    if style.skeleton == "tile":
        return _tiled_transpose(w, stage, planes, transposed)
    scalars = {n.count: "out.numel()", length: f"{x}.shape[-1]"}
    shift = stage.shift + 1 if style.slip == 0 and not stage.after else stage.shift
    lines: list[str] = []
    out, wrong = "", at
    match stage.kind:
        case "transpose":
            source = f"({at} % rows) * {length} + {at} // rows"
        case "swap_last":
            lines = [f"plane = {at} // (rows * {length})", f"inner = {at} % (rows * {length})"]
            source = f"plane * rows * {length} + (inner % rows) * {length} + inner // rows"
        case "flip":
            source = f"{at} // {length} * {length} + {length} - 1 - {at} % {length}"
            wrong = f"{n.count} - 1 - {at}"
        case "roll":
            step = f"({at} % {length} + {length} - {shift}) % {length}"
            source = f"{at} // {length} * {length} + {step}"
            wrong = f"({at} + {n.count} - {shift}) % {n.count}"
        case "select_rows":
            lines = [f"picked = {w.load(stage.index, (f'{at} // {length}', n.mask), '0')}"]
            source = f"picked * {length} + {at} % {length}"
            out = w.empty(f"{index}.shape[0]", f"{x}.shape[1]")
        case _:
            scalars["picks"] = f"{index}.shape[-1]"
            where = f"{at} % picks" if stage.kind == "select_cols" else at
            lines = [f"picked = {w.load(stage.index, (where, n.mask), '0')}"]
            source = f"{at} // picks * {length} + picked"
            out = w.empty(f"{x}.shape[0]", f"{index}.shape[-1]")
    if transposes:
        scalars["rows"] = f"{x}.shape[{last - 1}]"
        out = transposed
    width = "picks" if "picks" in scalars else length
    places: dict[Spread, Place] = {"full": (at, n.mask), "row": (f"({at} % {width})", n.mask)}
    lines += [
        f"source = {wrong if style.defect is Defect.WRONG_AXIS else source}",
        f"{w.value} = {w.load(stage.source, ('source', n.mask))}",
        *w.chain(stage.after, places),
        w.store((at, n.mask)),
    ]
    return _flat(w, scalars, lines, out)


def _tiled_transpose(
    w: TritonWriter, stage: MoveStage, planes: Sequence[str], out: str
) -> StageText:
    n = w.names
    moved = "col[None, :] * rows + row[:, None]"
    body = [
        *_tile_of(w),
        f"{n.mask} = (row[:, None] < rows) & (col[None, :] < {n.length})",
        f"{n.offs} = row[:, None] * {n.length} + col[None, :]",
        f"moved = {n.offs if w.style.defect is Defect.WRONG_AXIS else moved}",
    ]
    if planes:
        plane = f"tl.program_id(2) * rows * {n.length}"
        body += [f"{n.offs} += {plane}", f"moved += {plane}"]
    body += [
        f"{w.value} = {w.load(stage.source, (n.offs, n.mask))}",
        *w.chain(stage.after, {}),
        w.store(("moved", n.mask)),
    ]
    scalars = {"rows": f"{w.x}.shape[-2]", n.length: f"{w.x}.shape[-1]"}
    return _tiled(w, body, scalars, planes, out)
