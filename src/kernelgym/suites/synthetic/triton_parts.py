"""Pieces shared by the Triton writers: pointers, signatures, chains of steps.

A writer returns a `Part`: the kernel's lines and the host function's. Nothing here knows a
skeleton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelgym.suites.synthetic.operators import OPERATORS
from kernelgym.suites.synthetic.slips import slipped
from kernelgym.suites.synthetic.spec import ElementStep, Spread, Stage, operands
from kernelgym.suites.synthetic.style import Defect, Style

__all__ = [
    "OperandPlace",
    "Part",
    "argument",
    "arguments",
    "chain_lines",
    "indent",
    "load",
    "pad_value",
    "part",
    "store",
]


@dataclass(frozen=True, slots=True)
class Part:
    """One stage's text."""

    kernel: tuple[str, ...]
    host: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperandPlace:
    """Where an operand is found: index expression and mask expression (empty for none)."""

    index: str
    mask: str


def argument(name: str) -> str:
    """Return the host function's name for a tensor: ``self.fc1.weight`` becomes fc1_weight."""
    return name.removeprefix("self.").replace(".", "_")


def arguments(stage: Stage, style: Style) -> list[str]:
    """Return the tensors a host function takes, in this style's order."""
    first, *rest = operands(stage)
    return [first, *(reversed(rest) if style.reverse else rest)]


def pointer(style: Style, name: str) -> str:
    """Return a pointer's name inside the kernel."""
    return style.names.pointer.format(argument(name))


def indent(lines: Sequence[str], depth: int = 1) -> list[str]:
    """Return lines moved in by `depth` levels."""
    return [f"{'    ' * depth}{line}" if line else line for line in lines]


def load(style: Style, name: str, place: OperandPlace, other: str = "0.0") -> str:
    """Return a load expression."""
    mask = f", mask={place.mask}, other={other}" if place.mask else ""
    if style.defect is Defect.MISSING_MASK:
        mask = ""
    return f"tl.load({pointer(style, name)} + {place.index}{mask})"


def store(style: Style, name: str, place: OperandPlace, value: str) -> str:
    """Return a store statement."""
    mask = f", mask={place.mask}" if place.mask else ""
    if style.defect is Defect.MISSING_MASK:
        mask = ""
    return f"tl.store({pointer(style, name)} + {place.index}, {value}{mask})"


def pad_value(steps: Sequence[ElementStep]) -> str:
    """Return what masked-out elements are loaded as: inside every operator's domain."""
    return "1.0" if any(OPERATORS[step.op].floor > 0 for step in steps) else "0.0"


def chain_lines(
    style: Style,
    steps: Sequence[ElementStep],
    places: Mapping[Spread, OperandPlace],
    slip: int = -1,
) -> list[str]:
    """Return the lines that run a chain of steps on the running value.

    Args:
        style: Style of the stage.
        steps: The steps.
        places: Where second operands are found.
        slip: Number of the step whose constant is wrong; negative for none.
    """
    value = style.names.value
    lines = []
    for number, step in enumerate(steps):
        second = ""
        if step.operand:
            second = f"{argument(step.operand)}_val"
            lines.append(f"{second} = {load(style, step.operand, places[step.spread])}")
        if number == slip:
            text, step = slipped(step, "triton")
        else:
            text = OPERATORS[step.op].triton
        lines.append(f"{value} = {text.format(*step.consts, x=value, t=second)}")
    return lines


def part(
    stage: Stage,
    style: Style,
    body: Sequence[str],
    scalars: Mapping[str, str],
    constants: Mapping[str, int],
    grid: str,
    out: str,
) -> Part:
    """Put a kernel and its host function together.

    Args:
        stage: The stage.
        style: Its style.
        body: Lines of the kernel's body.
        scalars: Integer arguments by name, with the host's expression for each.
        constants: Compile-time arguments by name.
        grid: The host's grid expression.
        out: The host's expression that allocates the result.
    """
    names = arguments(stage, style)
    tensors = [*(argument(name) for name in names)]
    ordered = ["out", *tensors] if style.out_first else [*tensors, "out"]
    formal = [style.names.pointer.format(name) for name in ordered]
    formal += [*scalars, *(f"{name}: tl.constexpr" for name in constants)]
    if style.defect is Defect.NAME_ERROR:
        body = _misspell(body, style)
    if style.defect is Defect.TYPE_SLIP:
        body = _truncate(body, style)
    kernel = ["@triton.jit", f"def {style.function}_kernel({', '.join(formal)}):", *indent(body)]
    actual = [*ordered, *scalars, *(f"{name}={value}" for name, value in constants.items())]
    host = [
        f"def {style.function}({', '.join(tensors)}):",
        *indent(
            [
                f"out = {out}",
                *(f"{name} = {text}" for name, text in scalars.items()),
                f"{style.function}_kernel[{grid}]({', '.join(actual)})",
                "return out",
            ]
        ),
    ]
    return Part(tuple(kernel), tuple(host))


def _misspell(body: Sequence[str], style: Style) -> list[str]:
    """Misspell the running value, or whatever is stored, in the last store."""
    lines = list(body)
    for place in range(len(lines) - 1, -1, -1):
        head, found, tail = lines[place].rpartition("tl.store(")
        if found:
            target, _, rest = tail.partition(", ")
            lines[place] = f"{head}{found}{target}, result_{rest}"
            break
    return lines


def _truncate(body: Sequence[str], style: Style) -> list[str]:
    """Pass the first value loaded through an integer type."""
    lines = list(body)
    for place, line in enumerate(lines):
        name, found, rest = line.partition(" = tl.load(")
        if found and name.strip() in (style.names.value, "left"):
            lines[place] = f"{name}{found}{rest}.to(tl.int32).to(tl.float32)"
    return lines
