"""TileLang kernels: element-wise chains, and work along an axis on tiles of whole lanes.

Values are widened to fp32 when they are read and narrowed when they are written, since TileLang is
judged in fp16 and bf16. Not written: running sums, rearrangements and matrix products.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from kernelgym.suites.synthetic.operators import step_and_text
from kernelgym.suites.synthetic.spec import ElementStep, RowsStage, Spec, Spread, Stage
from kernelgym.suites.synthetic.style import Defect, Style, power_of_two, row_geometry
from kernelgym.suites.synthetic.triton_parts import argument, arguments, indent

_THREADS, _TILE = 128, 2048
_SAME = {"where": "if_then_else", "maximum": "max", "minimum": "min"}
_LOW, _HIGH = '-T.infinity("float32")', 'T.infinity("float32")'
_NEUTRAL = {"max": _LOW, "softmax": _LOW, "log_softmax": _LOW, "min": _HIGH}
"""Neutral value for elements beyond a lane's end, by operation along the axis; 0 for others."""


def writes(stage: Stage) -> bool:
    """Return True if a TileLang kernel can be written for a stage."""
    return isinstance(stage, RowsStage) and stage.tail not in ("cumsum", "reverse_cumsum")


def tile_style(spec: Spec, stage: Stage, style: Style) -> Style:
    """Return a kernel style whose blocks suit tiles of whole lanes, or a flat chain."""
    assert isinstance(stage, RowsStage)
    if not stage.tail:
        block = min(max(style.block, _THREADS), 1024)
        return dataclasses.replace(style, skeleton="flat", block=block, lanes=1)
    width = power_of_two(row_geometry(spec, stage)[1])
    lanes = max(1, min(style.lanes, _TILE // width))
    return dataclasses.replace(style, skeleton="tile", block=width, lanes=lanes)


def write_tiles(spec: Spec, stage: Stage, style: Style) -> list[str]:
    """Return a stage's kernel and host function in TileLang."""
    assert isinstance(stage, RowsStage)
    writer = _Writer(spec, stage, style)
    return writer.rows() if stage.tail else writer.chain_alone()


class _Writer:
    """Writes one stage's kernel in one style."""

    def __init__(self, spec: Spec, stage: RowsStage, style: Style) -> None:
        self.stage, self.style, self.value = stage, style, style.names.value
        self.tensors = [argument(name) for name in arguments(stage, style)]
        self.x = argument(stage.source)
        self.inner = row_geometry(spec, stage)[2]

    def read(self, at: str) -> str:
        """Return the first value's expression; the defect passes it through an integer type."""
        text = f"{self.x}[{at}]"
        if self.style.defect is Defect.TYPE_SLIP:
            text = f'T.cast({text}, "int32")'
        return f'T.cast({text}, "float32")'

    def chain(
        self, steps: Sequence[ElementStep], places: Mapping[Spread, str], first: int = 0
    ) -> list[str]:
        """Return the lines that apply a chain of steps to the running value."""
        lines = []
        for number, step in enumerate(steps, first):
            second = ""
            if step.operand:
                second = f'T.cast({argument(step.operand)}[{places[step.spread]}], "float32")'
            text, written = step_and_text(step, "tilelang", number == self.style.slip)
            text = text.format(*written.consts, x=self.value, t=second)
            text = re.sub(r"\btl\.(\w+)", lambda found: f"T.{_SAME.get(found[1], found[1])}", text)
            lines.append(f"{self.value} = {text}")
        return lines

    def store(self, at: str) -> str:
        """Return the statement that stores the running value."""
        wrong = "result_" if self.style.defect is Defect.NAME_ERROR else ""
        return f"out[{at}] = T.cast({wrong}{self.value}, dtype)"

    def chain_alone(self) -> list[str]:
        """Return a kernel that handles elements in their order in memory."""
        row, col = "at // cols", "at % cols"
        if self.style.defect is Defect.WRONG_AXIS:
            col = row
        places: dict[Spread, str] = {"full": "at", "row": col, "col": row}
        work = [
            f"{self.value} = {self.read('at')}",
            *self.chain(self.stage.before, places),
            self.store("at"),
        ]
        body = [
            "for i in T.Parallel(block):",
            "    at = bx * block + i",
            f"    if at < n_{self.x}:",
            *indent(work, 2),
        ]
        sizes = [f"n_{name}" for name in self.tensors]
        numbers = {"cols": f"{self.x}.shape[-1]"}
        return self.finish(sizes, numbers, f"n_{self.x}", self.style.block, body, f"n_{self.x}")

    def rows(self) -> list[str]:
        """Return a kernel that works along an axis, on a tile of whole lanes for each block."""
        stage, v = self.stage, self.value
        at = "lane * length + c"
        if self.inner > 1:
            at = "(lane // inner) * (length * inner) + lane % inner + c * inner"
        places: dict[Spread, str] = {"full": "at", "row": "c", "col": "lane"}
        where = ["lane = bx * block + i", "c = j", f"at = {at}"]
        neutral = _NEUTRAL.get(stage.tail, "0.0")
        tile = "for i, j in T.Parallel(block, width):"
        # Lanes and places beyond the end repeat the last one, and are never written.
        inside = [
            "lane = T.min(bx * block + i, lanes - 1)",
            "c = T.min(j, length - 1)",
            f"at = {at}",
        ]
        body = [
            'values = T.alloc_fragment((block, width), "float32")',
            tile,
            *indent(inside),
            f"    {v} = {self.read('at')}",
            *indent(self.chain(stage.before, places)),
            f"    values[i, j] = T.if_then_else(j < length, {v}, {neutral})",
        ]
        statistics, last = self._tail()
        body += statistics
        after = self.chain(stage.after, places, len(stage.before))
        if stage.reduces:
            work = [f"{v} = {last}", *after, self.store("lane")]
            body += ["for i in T.Parallel(block):", f"    {where[0]}", "    if lane < lanes:"]
        else:
            weighed = [
                f'{v} = {v} {sign} T.cast({argument(name)}[c], "float32")'
                for name, sign in zip(stage.weights, "*+", strict=False)
            ]
            work = [f"{v} = {last}", *weighed, *after, self.store("at")]
            body += [tile, *indent(where), "    if lane < lanes and j < length:"]
        body += indent(work, 2)
        axis = stage.axis % len(stage.shape)
        numbers = {
            "lanes": f"{self.x}.numel() // {self.x}.shape[{axis}]",
            "length": f"{self.x}.shape[{axis}]",
            "inner": f"{self.x}.stride({axis})",
        }
        sizes = [f"n_{name}" for name in self.tensors]
        out = "lanes" if stage.reduces else f"n_{self.x}"
        return self.finish(sizes, numbers, "lanes", self.style.lanes, body, out)

    def _tail(self) -> tuple[list[str], str]:
        """Return the lines that compute a lane's statistics, and the last value's expression."""

        def reduced(kind: str, source: str, result: str) -> list[str]:
            made = f'{result} = T.alloc_fragment((block,), "float32")'
            return [made, f"T.reduce_{kind}({source}, {result}, dim=1)"]

        def each(target: str, text: str) -> list[str]:
            made = f'{target} = T.alloc_fragment((block, width), "float32")'
            known = [] if target == "values" else [made]
            return [
                *known, "for i, j in T.Parallel(block, width):", f"    {target}[i, j] = {text}"
            ]  # fmt: skip

        squares = [*each("parts", "values[i, j] * values[i, j]"), *reduced("sum", "parts", "power")]
        length = "length"
        if self.style.defect is Defect.WRONG_CONSTANT and self.style.slip < 0:
            length = "(length // 2)"
        match self.stage.tail:
            case "sum" | "max" | "min" as kind:
                return reduced(kind, "values", "total"), "total[i]"
            case "mean":
                return reduced("sum", "values", "total"), f"total[i] / {length}"
            case "norm2":
                return squares, "T.sqrt(power[i])"
            case "softmax" | "log_softmax" as tail:
                lines = [
                    *reduced("max", "values", "peak"),
                    *each("parts", "T.exp(values[i, j] - peak[i])"),
                    *reduced("sum", "parts", "total"),
                ]
                if tail == "softmax":
                    return lines, "parts[i, j] / total[i]"
                return lines, "values[i, j] - (peak[i] + T.log(total[i]))"
            case "layer_norm" | "center" as tail:
                apart = "T.if_then_else(j < length, values[i, j] - mean[i] / length, 0.0)"
                lines = [*reduced("sum", "values", "mean"), *each("values", apart)]
                if tail == "center":
                    return lines, "values[i, j]"
                return [*lines, *squares], "values[i, j] / T.sqrt(power[i] / length + 1e-5)"
            case "rms_norm":
                return squares, "values[i, j] / T.sqrt(power[i] / length + 1e-5)"
        return squares, "values[i, j] / T.sqrt(power[i])"

    def finish(
        self,
        sizes: Sequence[str],
        numbers: Mapping[str, str],
        count: str,
        block: int,
        body: Sequence[str],
        out: str,
    ) -> list[str]:
        """Return the text of the kernel with its host function.

        Args:
            sizes: Names of the tensors' sizes.
            numbers: Further arguments of the kernel, with the host's expression for each.
            count: Name of the number of elements or lanes that blocks are made of.
            block: Elements or lanes of a block.
            body: Lines of a block's work.
            out: Name of the size of the result.
        """
        function, stage = self.style.function, self.stage
        short = self.style.defect is Defect.NO_BOUNDS_CHECK
        blocks = f"{count} // block" if short else f"T.ceildiv({count}, block)"
        formal = ", ".join((*sizes, *numbers, "dtype", f"block={block}"))
        typed = [f"{name}: T.Tensor((n_{name},), dtype)" for name in self.tensors]
        typed.append(f"out: T.Tensor(({out},), dtype)")
        width = ["width = 1 << (length - 1).bit_length()"] if stage.tail else []
        shape = f"{self.x}.shape"
        if stage.reduces:
            axis = stage.axis % len(stage.shape)
            shape = f"{self.x}.shape[:{axis}] + {self.x}.shape[{axis + 1}:]"
        sent = ", ".join((f"[{', '.join(self.tensors)}]", *numbers.values()))
        return [
            "@tilelang.jit(out_idx=[-1])",
            f"def {function}_kernel({formal}):",
            *indent([*width, "", "@T.prim_func", f"def main({', '.join(typed)}):"]),
            f"        with T.Kernel({blocks}, threads={_THREADS}) as bx:",
            *indent(body, 3),
            *("", "    return main", "", "", f"{function}_built = {{}}", "", ""),
            f"def {function}({', '.join(self.tensors)}):",
            f"    return launch({function}_kernel, {function}_built, {sent}).view({shape})",
        ]
