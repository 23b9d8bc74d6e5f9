"""Triton kernels that work along an axis: reductions, softmax, norms and running sums.

A lane is one position across the axis; consecutive elements of a lane lie `inner` apart. Skeletons:
one lane in one block (`row`), one lane in a loop (`loop`), and the same for a tile of lanes
(`tile`, `tile_loop`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelgym.suites.synthetic.operators import pad_value
from kernelgym.suites.synthetic.spec import RowsStage, Spec, Spread
from kernelgym.suites.synthetic.style import Defect, Style, row_geometry
from kernelgym.suites.synthetic.triton_parts import (
    Place,
    StageText,
    TritonWriter,
    argument,
    indent,
)

_EPS = "1e-5"
_LOW, _HIGH = 'float("-inf")', 'float("inf")'

_REDUCTIONS: Mapping[str, tuple[str, str, str, str]] = {
    "sum": ("sum", "0.0", "{v}", "{}"),
    "mean": ("sum", "0.0", "{v}", "{} / {length}"),
    "norm2": ("sum", "0.0", "{v} * {v}", "tl.sqrt({})"),
    "max": ("max", _LOW, "{v}", "{}"),
    "min": ("min", _HIGH, "{v}", "{}"),
}
"""For each reduction: function, neutral element, reduced value, and the result's expression."""


def write_rows(spec: Spec, stage: RowsStage, style: Style) -> StageText:
    """Return the Triton kernel of steps, an operation along an axis, and steps on its result."""
    w, n = _RowsWriter(spec, stage, style), style.names
    axis = stage.axis % len(stage.shape)
    scalars = {n.length: f"{w.x}.shape[{axis}]"}
    constants = {n.block: style.block}
    grid = f"{w.x}.numel() // {n.length}"
    lane = ["lane = tl.program_id(0)"]
    if w.tiled:
        lane = ["lane = tl.program_id(0) * LANES + tl.arange(0, LANES)", "live = lane < lanes"]
        scalars["lanes"] = grid
        constants["LANES"] = style.lanes
        grid = w.blocks("lanes", style.lanes)
    base = f"lane * {n.length}"
    if w.inner > 1:
        base = f"(lane // inner) * ({n.length} * inner) + lane % inner"
        scalars["inner"] = f"{w.x}.stride({axis})"
    work = w.looped() if w.loops else [*w.position(), *w.whole()]
    kept = [f"{w.x}.shape[{i}]" for i in range(len(stage.shape)) if i != axis]
    out = w.empty(*kept) if stage.reduces else ""
    return w.finish([*lane, f"base = {base}", *work], scalars, constants, [grid], out)


class _RowsWriter(TritonWriter):
    """Writes the body of one kernel that works along an axis."""

    def __init__(self, spec: Spec, stage: RowsStage, style: Style) -> None:
        super().__init__(stage, style)
        self.rows = stage
        _, _, self.inner = row_geometry(spec, stage)
        self.tiled = style.skeleton in ("tile", "tile_loop")
        self.loops = style.skeleton in ("loop", "tile_loop")
        block, names = style.names.block, style.names
        # Suffix that lets a lane's value meet its elements, and shapes of accumulators.
        self.wide = "[:, None]" if self.tiled else ""
        self.across = "[None, :]" if self.tiled else ""
        self.shape = f"(LANES, {block})" if self.tiled else f"({block},)"
        self.axis = int(self.tiled)
        self.elements: Place = (names.offs, names.mask)
        self.row: Place = (f"col{self.across}", f"inside{self.across}")
        self.lane: Place = ("lane", "live" if self.tiled else "")
        self.places: dict[Spread, Place] = {
            "full": self.elements,
            "row": self.row,
            "col": (f"lane{self.wide}", f"live{self.wide}" if self.tiled else ""),
        }

    def position(self, start: str = "") -> list[str]:
        """Return the lines that compute the places of a block's elements, from `start` on."""
        n = self.names
        step = f"({n.length} - 1 - col)" if self.rows.tail == "reverse_cumsum" else "col"
        stride = " * inner" if self.inner > 1 else ""
        live = f"live[:, None] & inside{self.across}" if self.tiled else "inside"
        return [
            f"col = {start}tl.arange(0, {n.block})",
            f"inside = col < {n.length}",
            f"{n.mask} = {live}",
            f"{n.offs} = base{self.wide} + {step}{self.across}{stride}",
        ]

    def read(self) -> list[str]:
        """Return the lines that load a block and apply the steps before the axis's operation."""
        before = self.rows.before
        first = self.load(self.rows.source, self.elements, pad_value(before))
        return [f"{self.value} = {first}", *self.chain(before, self.places)]

    def write(self, place: Place) -> list[str]:
        """Return the lines that apply the steps after the operation along the axis, and store."""
        after = self.chain(self.rows.after, self.places, len(self.rows.before))
        return [*after, self.store(place)]

    def weigh_and_write(self) -> list[str]:
        """Return the lines that apply a norm's learned scale and shift, then write a block."""
        lines = []
        for name, sign in zip(self.rows.weights, "*+", strict=False):
            weight = f"{argument(name)}_val"
            lines.append(f"{weight} = {self.load(name, self.row)}")
            lines.append(f"{self.value} = {self.value} {sign} {weight}")
        return [*lines, *self.write(self.elements)]

    def masked(self, text: str, neutral: str = "0.0") -> str:
        """Return an expression in which elements beyond the lane's end are neutral."""
        return f"tl.where(inside{self.across}, {text}, {neutral})"

    def reduced(self, text: str, kind: str = "sum") -> str:
        """Return an expression's reduction along the axis."""
        return f"tl.{kind}({text}, axis={self.axis})"

    def lane_value(self, name: str, value: str) -> str:
        """Return the line that initialises a value of every lane."""
        full = {"0.0": "tl.zeros((LANES,), dtype=tl.float32)"}.get(
            value, f"tl.full((LANES,), {value}, dtype=tl.float32)"
        )
        return f"{name} = {full if self.tiled else value}"

    def over_blocks(self, lines: Sequence[str]) -> list[str]:
        """Return a loop over blocks that collects a statistic; the defect drops its end."""
        n = self.names
        return self.loop("start", f"0, {n.length}, {n.block}", [*self.position("start + "), *lines])

    def _reduction(self) -> tuple[str, str, str, str]:
        """Return reduction, neutral element, reduced value and result of a reducing operation."""
        length = self.names.length
        if self.style.defect is Defect.WRONG_CONSTANT and self.style.slip < 0:
            length = f"({length} // 2)"
        kind, neutral, text, last = _REDUCTIONS[self.rows.tail]
        return kind, neutral, text.format(v=self.value), last.replace("{length}", length)

    def whole(self) -> list[str]:
        """Return the rest of the kernel's body for a whole lane in one block."""
        v, wide, length = self.value, self.wide, self.names.length
        lines = self.read()
        match self.rows.tail:
            case "sum" | "mean" | "norm2" | "max" | "min":
                kind, neutral, text, last = self._reduction()
                result = last.format(self.reduced(self.masked(text, neutral), kind))
                return [*lines, f"{v} = {result}", *self.write(self.lane)]
            case "softmax" | "log_softmax" as tail:
                lines += [
                    f"{v} = {self.masked(v, _LOW)}",
                    f"{v} = {v} - {self.reduced(v, 'max')}{wide}",
                    f"total = {self.reduced(f'tl.exp({v})')}",
                    f"{v} = tl.exp({v}) / total{wide}"
                    if tail == "softmax"
                    else f"{v} = {v} - tl.log(total){wide}",
                ]
            case "layer_norm" | "center" as tail:
                lines += [
                    f"mean = {self.reduced(self.masked(v))} / {length}",
                    f"{v} = {self.masked(f'{v} - mean{wide}')}",
                ]
                if tail == "layer_norm":
                    lines += [
                        f"variance = {self.reduced(f'{v} * {v}')} / {length}",
                        f"{v} = {v} * (1.0 / tl.sqrt(variance + {_EPS})){wide}",
                    ]
            case "rms_norm":
                lines += [
                    f"power = {self.reduced(self.masked(f'{v} * {v}'))} / {length}",
                    f"{v} = {v} * (1.0 / tl.sqrt(power + {_EPS})){wide}",
                ]
            case "unit_norm":
                lines += [
                    f"power = {self.reduced(self.masked(f'{v} * {v}'))}",
                    f"{v} = {v} / tl.sqrt(power){wide}",
                ]
            case _:
                lines.append(f"{v} = tl.cumsum({self.masked(v)}, axis={self.axis})")
        return [*lines, *self.weigh_and_write()]

    def _sum_over_blocks(self, text: str) -> list[str]:
        acc = f"acc = tl.zeros({self.shape}, dtype=tl.float32)"
        return [acc, *self.over_blocks([*self.read(), f"acc += {self.masked(text)}"])]

    def looped(self) -> list[str]:
        """Return the rest of the kernel's body for a loop over blocks."""
        v, wide, length = self.value, self.wide, self.names.length
        match self.rows.tail:
            case "sum" | "mean" | "norm2" | "max" | "min":
                kind, neutral, text, last = self._reduction()
                lines = self._sum_over_blocks(text)
                if kind != "sum":
                    grow = f"acc = tl.{kind}imum(acc, {self.masked(text, neutral)})"
                    lines = [
                        f"acc = tl.full({self.shape}, {neutral}, dtype=tl.float32)",
                        *self.over_blocks([*self.read(), grow]),
                    ]
                result = last.format(self.reduced("acc", kind))
                return [*lines, f"{v} = {result}", *self.write(self.lane)]
            case "cumsum" | "reverse_cumsum":
                return self._running_sum()
            case "softmax" | "log_softmax" as tail:
                lines = self._softmax_statistics()
                last = f"tl.exp({v} - peak{wide}) / total{wide}"
                if tail == "log_softmax":
                    last = f"{v} - (peak + tl.log(total)){wide}"
            case "layer_norm" | "center" as tail:
                lines = [*self._sum_over_blocks(v), f"mean = {self.reduced('acc')} / {length}"]
                last = f"{v} - mean{wide}"
                if tail == "layer_norm":
                    lines += [
                        *self._sum_over_blocks(f"({last}) * ({last})"),
                        f"scale = 1.0 / tl.sqrt({self.reduced('acc')} / {length} + {_EPS})",
                    ]
                    last = f"({last}) * scale{wide}"
            case tail:
                mean = f" / {length} + {_EPS}" if tail == "rms_norm" else ""
                lines = [
                    *self._sum_over_blocks(f"{v} * {v}"),
                    f"scale = 1.0 / tl.sqrt({self.reduced('acc')}{mean})",
                ]
                last = f"{v} * scale{wide}"
        writing = [
            *self.position("start + "),
            *self.read(),
            f"{v} = {last}",
            *self.weigh_and_write(),
        ]
        span = f"0, {length}, {self.names.block}"
        return [*lines, f"for start in range({span}):", *indent(writing)]

    def _softmax_statistics(self) -> list[str]:
        """Return the lines that find each lane's maximum and sum of exponentials in one pass."""
        v = self.value
        gather = [
            *self.read(),
            f"{v} = {self.masked(v, _LOW)}",
            f"higher = tl.maximum(peak, {self.reduced(v, 'max')})",
            f"part = {self.reduced(f'tl.exp({v} - higher{self.wide})')}",
            "total = total * tl.exp(peak - higher) + part",
            "peak = higher",
        ]
        start = [self.lane_value("peak", _LOW), self.lane_value("total", "0.0")]
        return [*start, *self.over_blocks(gather)]

    def _running_sum(self) -> list[str]:
        v = self.value
        lines = [
            *self.read(),
            f"{v} = {self.masked(v)}",
            f"block_sum = {self.reduced(v)}",
            f"{v} = tl.cumsum({v}, axis={self.axis}) + carry{self.wide}",
            "carry += block_sum",
            *self.write(self.elements),
        ]
        return [self.lane_value("carry", "0.0"), *self.over_blocks(lines)]
