"""Triton kernels that work along an axis: reductions, softmax, norms and running sums.

A lane is one position across the axis; consecutive elements of a lane lie `inner` apart. Skeletons:
one lane in one block (`row`), one lane in a loop (`loop`), and the same for a tile of lanes
(`tile`, `tile_loop`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelgym.suites.synthetic.spec import RowsStage, Spec, Spread
from kernelgym.suites.synthetic.style import Defect, Style, row_geometry
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

__all__ = ["write_rows"]

_EPS = "1e-5"


@dataclass(frozen=True, slots=True)
class _Frame:
    """What differs between one lane and a tile of lanes."""

    tiled: bool
    looped: bool
    axis: str
    wide: str
    """Appended to a lane's value to meet the elements."""
    shape: str
    """Shape of an accumulator of elements."""
    lane_shape: str


def _frame(style: Style) -> _Frame:
    tiled = style.skeleton in ("tile", "tile_loop")
    looped = style.skeleton in ("loop", "tile_loop")
    block = style.names.block
    if tiled:
        return _Frame(True, looped, "1", "[:, None]", f"(LANES, {block})", "(LANES,)")
    return _Frame(False, looped, "0", "", f"({block},)", "")


def write_rows(spec: Spec, stage: RowsStage, style: Style, slip: int = -1) -> Part:
    """Write steps, an operation along an axis, and steps on its result."""
    writer = _Writer(spec, stage, style, slip)
    n, frame = style.names, writer.frame
    head = _head(frame, n.length, writer.inner)
    if not frame.looped:
        head += writer.position("0")
    body = [*head, *(writer.looped() if frame.looped else writer.whole())]
    x = argument(stage.source)
    axis = stage.axis % len(stage.shape)
    scalars = {n.length: f"{x}.shape[{axis}]"}
    if frame.tiled:
        scalars["lanes"] = f"{x}.numel() // {n.length}"
    if writer.inner > 1:
        scalars["inner"] = f"{x}.stride({axis})"
    constants = {n.block: style.block}
    grid = f"({x}.numel() // {n.length},)"
    if frame.tiled:
        constants["LANES"] = style.lanes
        grid = f"(triton.cdiv(lanes, {style.lanes}),)"
        if style.defect is Defect.NO_BOUNDS_CHECK:
            grid = f"(lanes // {style.lanes},)"
    out = f"torch.empty_like({x})"
    if stage.reduces:
        kept = [f"{x}.shape[{i}]" for i in range(len(stage.shape)) if i != axis]
        comma = "," if len(kept) == 1 else ""
        out = f"torch.empty(({', '.join(kept)}{comma}), device={x}.device, dtype={x}.dtype)"
    return part(stage, style, body, scalars, constants, grid, out)


def _head(frame: _Frame, length: str, inner: int) -> list[str]:
    base = (
        f"(lane // inner) * ({length} * inner) + lane % inner" if inner > 1 else f"lane * {length}"
    )
    if frame.tiled:
        return [
            "lane = tl.program_id(0) * LANES + tl.arange(0, LANES)",
            "live = lane < lanes",
            f"base = {base}",
        ]
    return ["lane = tl.program_id(0)", f"base = {base}"]


class _Writer:
    """Writes the body of one kernel."""

    def __init__(self, spec: Spec, stage: RowsStage, style: Style, slip: int) -> None:
        self.stage, self.style, self.slip = stage, style, slip
        self.frame = _frame(style)
        self.lanes, self.length, self.inner = row_geometry(spec, stage)
        self.v = style.names.value
        self.keep = style.names.mask
        self.inside = "inside[None, :]" if self.frame.tiled else "inside"

    def position(self, start: str) -> list[str]:
        """Return the lines that say where the current block's elements lie."""
        n, frame = self.style.names, self.frame
        offset = "" if start == "0" else f"{start} + "
        pos = f"{n.length} - 1 - col" if self.stage.tail == "reverse_cumsum" else "col"
        step = f"({pos})" if pos != "col" else "col"
        step += "[None, :]" if frame.tiled else ""
        step += " * inner" if self.inner > 1 else ""
        lines = [f"col = {offset}tl.arange(0, {n.block})", f"inside = col < {n.length}"]
        if frame.tiled:
            lines.append(f"{n.mask} = live[:, None] & inside[None, :]")
        else:
            lines.append(f"{n.mask} = inside")
        return [*lines, f"{n.offs} = base{frame.wide} + {step}"]

    def places(self) -> dict[Spread, OperandPlace]:
        """Return where second operands lie."""
        n = self.style.names
        if self.frame.tiled:
            row, col = (
                OperandPlace("col[None, :]", self.inside),
                OperandPlace("lane[:, None]", "live[:, None]"),
            )
        else:
            row, col = OperandPlace("col", "inside"), OperandPlace("lane", "")
        return {"full": OperandPlace(n.offs, n.mask), "row": row, "col": col}

    def read(self) -> list[str]:
        """Return the lines that load a block and run the steps before the tail."""
        before = self.stage.before
        place = OperandPlace(self.style.names.offs, self.keep)
        first = load(self.style, self.stage.source, place, pad_value(before))
        return [f"{self.v} = {first}", *chain_lines(self.style, before, self.places(), self.slip)]

    def finish(self) -> list[str]:
        """Return the lines that run the steps after the tail and store a block."""
        place = OperandPlace(self.style.names.offs, self.keep)
        return [*self._after(), store(self.style, "out", place, self.v)]

    def _after(self) -> list[str]:
        slip = self.slip - len(self.stage.before) if self.slip >= 0 else -1
        return chain_lines(self.style, self.stage.after, self.places(), slip)

    def masked(self, text: str, neutral: str) -> str:
        """Return an expression with the elements beyond the end made neutral."""
        return f"tl.where({self.inside}, {text}, {neutral})"

    def reduced(self, text: str, kind: str = "sum") -> str:
        """Return an expression reduced along the axis."""
        return f"tl.{kind}({text}, axis={self.frame.axis})"

    def weigh(self) -> list[str]:
        """Return the lines that apply a norm's learned scale and shift."""
        lines = []
        for name, sign in zip(self.stage.weights, "*+", strict=False):
            value = f"{argument(name)}_val"
            lines.append(f"{value} = {load(self.style, name, self.places()['row'])}")
            lines.append(f"{self.v} = {self.v} {sign} {value}")
        return lines

    def store_lanes(self, text: str) -> list[str]:
        """Return the lines that store one value a lane."""
        mask = "live" if self.frame.tiled else ""
        return [
            f"{self.v} = {text}",
            *self._after(),
            store(self.style, "out", OperandPlace("lane", mask), self.v),
        ]

    def whole(self) -> list[str]:
        """Return the body's rest for a whole lane in one block."""
        v, wide, length = self.v, self.frame.wide, self.style.names.length
        lines = self.read()
        match self.stage.tail:
            case "sum" | "mean" | "norm2" | "max" | "min":
                kind, neutral, text, last = self._reduction()
                return lines + self.store_lanes(
                    last.format(self.reduced(self.masked(text, neutral), kind))
                )
            case "softmax" | "log_softmax":
                low = 'float("-inf")'
                lines += [
                    f"{v} = {self.masked(v, low)}",
                    f"{v} = {v} - {self.reduced(v, 'max')}{wide}",
                    f"total = {self.reduced(f'tl.exp({v})')}",
                ]
                lines.append(
                    f"{v} = tl.exp({v}) / total{wide}"
                    if self.stage.tail == "softmax"
                    else f"{v} = {v} - tl.log(total){wide}"
                )
            case "layer_norm" | "center":
                lines += [
                    f"mean = {self.reduced(self.masked(v, '0.0'))} / {length}",
                    f"{v} = {self.masked(f'{v} - mean{wide}', '0.0')}",
                ]
                if self.stage.tail == "layer_norm":
                    lines += [
                        f"variance = {self.reduced(f'{v} * {v}')} / {length}",
                        f"{v} = {v} * (1.0 / tl.sqrt(variance + {_EPS})){wide}",
                    ]
            case "rms_norm":
                lines += [
                    f"power = {self.reduced(self.masked(f'{v} * {v}', '0.0'))} / {length}",
                    f"{v} = {v} * (1.0 / tl.sqrt(power + {_EPS})){wide}",
                ]
            case "unit_norm":
                lines += [
                    f"power = {self.reduced(self.masked(f'{v} * {v}', '0.0'))}",
                    f"{v} = {v} / tl.sqrt(power){wide}",
                ]
            case _:
                lines.append(f"{v} = tl.cumsum({self.masked(v, '0.0')}, axis={self.frame.axis})")
        return [*lines, *self.weigh(), *self.finish()]

    def _reduction(self) -> tuple[str, str, str, str]:
        """Return (reduction, neutral element, what is reduced, what becomes of it)."""
        v, length = self.v, self.style.names.length
        if self.style.defect is Defect.WRONG_CONSTANT and self.slip < 0:
            length = f"({length} // 2)"
        match self.stage.tail:
            case "max":
                return "max", 'float("-inf")', v, "{}"
            case "min":
                return "min", 'float("inf")', v, "{}"
            case "mean":
                return "sum", "0.0", v, f"{{}} / {length}"
            case "norm2":
                return "sum", "0.0", f"{v} * {v}", "tl.sqrt({})"
            case _:
                return "sum", "0.0", v, "{}"

    def loop(self, lines: Sequence[str], statistics: bool) -> list[str]:
        """Return a loop over blocks, or only its first turn where that is the defect."""
        n = self.style.names
        inner = [*self.position("start"), *lines]
        if self.style.defect is Defect.MISSING_LOOP and statistics:
            return ["start = 0", *inner]
        return [f"for start in range(0, {n.length}, {n.block}):", *indent(inner)]

    def looped(self) -> list[str]:
        """Return the body's rest for a loop over blocks."""
        v, frame, length = self.v, self.frame, self.style.names.length
        acc = f"acc = tl.zeros({frame.shape}, dtype=tl.float32)"
        wide = frame.wide

        def power(text: str) -> list[str]:
            square = [*self.read(), f"acc += {self.masked(text, '0.0')}"]
            return [acc, *self.loop(square, True)]

        match self.stage.tail:
            case "sum" | "mean" | "norm2" | "max" | "min":
                kind, neutral, text, last = self._reduction()
                grow = f"acc += {self.masked(text, neutral)}"
                if kind != "sum":
                    acc = f"acc = tl.full({frame.shape}, {neutral}, dtype=tl.float32)"
                    grow = f"acc = tl.{kind}imum(acc, {self.masked(text, neutral)})"
                lines = [acc, *self.loop([*self.read(), grow], True)]
                return lines + self.store_lanes(last.format(self.reduced("acc", kind)))
            case "softmax" | "log_softmax":
                return self._online_softmax()
            case "layer_norm" | "center":
                lines = [*power(v), f"mean = {self.reduced('acc')} / {length}"]
                last = f"{v} = {v} - mean{wide}"
                if self.stage.tail == "layer_norm":
                    lines += [*power(f"({v} - mean{wide}) * ({v} - mean{wide})")]
                    lines.append(
                        f"scale = 1.0 / tl.sqrt({self.reduced('acc')} / {length} + {_EPS})"
                    )
                    last = f"{v} = ({v} - mean{wide}) * scale{wide}"
            case "rms_norm" | "unit_norm":
                mean = f" / {length} + {_EPS}" if self.stage.tail == "rms_norm" else ""
                lines = [*power(f"{v} * {v}")]
                lines.append(f"scale = 1.0 / tl.sqrt({self.reduced('acc')}{mean})")
                last = f"{v} = {v} * scale{wide}"
            case _:
                return self._running_sum()
        write = [*self.read(), last, *self.weigh(), *self.finish()]
        return lines + self.loop(write, False)

    def _online_softmax(self) -> list[str]:
        v, frame = self.v, self.frame
        start = ['peak = float("-inf")', "total = 0.0"]
        if frame.tiled:
            start = [
                'peak = tl.full((LANES,), float("-inf"), dtype=tl.float32)',
                "total = tl.zeros((LANES,), dtype=tl.float32)",
            ]
        low = 'float("-inf")'
        gather = [
            *self.read(),
            f"{v} = {self.masked(v, low)}",
            f"higher = tl.maximum(peak, {self.reduced(v, 'max')})",
            f"part = {self.reduced(f'tl.exp({v} - higher{frame.wide})')}",
            "total = total * tl.exp(peak - higher) + part",
            "peak = higher",
        ]
        last = f"{v} = tl.exp({v} - peak{frame.wide}) / total{frame.wide}"
        if self.stage.tail == "log_softmax":
            last = f"{v} = {v} - (peak + tl.log(total)){frame.wide}"
        write = [*self.read(), last, *self.finish()]
        return [*start, *self.loop(gather, True), *self.loop(write, False)]

    def _running_sum(self) -> list[str]:
        v, frame = self.v, self.frame
        start = "carry = tl.zeros((LANES,), dtype=tl.float32)" if frame.tiled else "carry = 0.0"
        lines = [
            *self.read(),
            f"{v} = {self.masked(v, '0.0')}",
            f"block_sum = {self.reduced(v)}",
            f"{v} = tl.cumsum({v}, axis={frame.axis}) + carry{frame.wide}",
            "carry += block_sum",
            *self.finish(),
        ]
        return [start, *self.loop(lines, True)]
