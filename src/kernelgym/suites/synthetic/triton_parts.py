"""What the writers of Triton kernels share: loads, stores, chains of steps, loops and launches.

`TritonWriter` holds one stage and its style. It knows nothing of the arrangement of a kernel's
programs (its skeleton): `triton_flat`, `triton_dot` and `triton_rows` decide that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernelgym.suites.synthetic.operators import step_and_text
from kernelgym.suites.synthetic.spec import ElementStep, Spread, Stage, operands
from kernelgym.suites.synthetic.style import Defect, Style

Place: TypeAlias = tuple[str, str]
"""Place at which a kernel reads or writes a tensor: index expression and mask expression; the mask
may be empty."""


@dataclass(frozen=True, slots=True)
class StageText:
    """One stage's kernel in Triton's terms, with the function that launches it."""

    style: Style
    tensors: tuple[str, ...]
    """Arguments of the host function."""
    body: tuple[str, ...]
    """Lines of the kernel's body."""
    prepared: tuple[str, ...]
    """Lines of the host function before the launch: the result's allocation, and sizes."""
    scalars: tuple[str, ...]
    """Integer arguments of the kernel."""
    constants: Mapping[str, int]
    """Compile-time arguments of the kernel."""
    grid: tuple[str, ...]
    """Expressions of the host function for the sizes of the grid."""

    @property
    def ordered(self) -> tuple[str, ...]:
        """Names in the host function of the kernel's tensors, in the order of its arguments."""
        return ("out", *self.tensors) if self.style.out_first else (*self.tensors, "out")

    def host(self, launch: str) -> list[str]:
        """Return the lines of the host function, which contain `launch` as the launch statement."""
        head = f"def {self.style.function}({', '.join(self.tensors)}):"
        return [head, *indent((*self.prepared, launch, "return out"))]


def write_triton(text: StageText) -> list[str]:
    """Return a stage's kernel and host function in Triton."""
    kernel, constants = f"{text.style.function}_kernel", text.constants
    formal = [
        *(text.style.names.pointer.format(name) for name in text.ordered),
        *text.scalars,
        *(f"{name}: tl.constexpr" for name in constants),
    ]
    values = (f"{name}={value}" for name, value in constants.items())
    actual = ", ".join((*text.ordered, *text.scalars, *values))
    return [
        *("@triton.jit", f"def {kernel}({', '.join(formal)}):", *indent(text.body), "", ""),
        *text.host(f"{kernel}[{tuple_text(text.grid)}]({actual})"),
    ]


def argument(name: str) -> str:
    """Return the host function's name for a tensor: ``self.fc1.weight`` becomes fc1_weight."""
    return name.removeprefix("self.").replace(".", "_")


def arguments(stage: Stage, style: Style) -> list[str]:
    """Return the tensors that a host function takes, in the style's order."""
    first, *rest = operands(stage)
    return [first, *(reversed(rest) if style.reverse else rest)]


def indent(lines: Iterable[str], depth: int = 1) -> list[str]:
    """Return lines of a kernel indented by `depth` levels."""
    return [f"{'    ' * depth}{line}" if line else line for line in lines]


def tuple_text(parts: Sequence[str]) -> str:
    """Return the Python text of a tuple of expressions."""
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


class TritonWriter:
    """Writes the lines of one stage's kernel and host function in one style.

    Args:
        stage: Stage of the problem that the kernel computes.
        style: Style of the kernel, its defect included.
    """

    def __init__(self, stage: Stage, style: Style) -> None:
        self.stage: Stage = stage
        self.style, self.names, self.value = style, style.names, style.names.value
        self.x = argument(operands(stage)[0])

    def _at(self, name: str, index: str) -> str:
        return f"{self.names.pointer.format(argument(name))} + {index}"

    def _masked(self, mask: str) -> bool:
        return bool(mask) and self.style.defect is not Defect.MISSING_MASK

    def load(self, name: str, place: Place, other: str = "0.0") -> str:
        """Return a Triton load expression; masked-out elements become `other`."""
        index, mask = place
        masked = f", mask={mask}, other={other}" if self._masked(mask) else ""
        return f"tl.load({self._at(name, index)}{masked})"

    def store(self, place: Place) -> str:
        """Return the statement that stores the running value in the result."""
        index, mask = place
        masked = f", mask={mask}" if self._masked(mask) else ""
        return f"tl.store({self._at('out', index)}, {self.value}{masked})"

    def chain(
        self, steps: Sequence[ElementStep], places: Mapping[Spread, Place], first: int = 0
    ) -> list[str]:
        """Return the lines that run a chain of steps on the running value.

        Args:
            steps: The steps.
            places: Places of the second operands.
            first: Number of the first of the steps within the stage.
        """
        lines = []
        for number, step in enumerate(steps, first):
            second = ""
            if step.operand:
                second = f"{argument(step.operand)}_val"
                lines.append(f"{second} = {self.load(step.operand, places[step.spread])}")
            text, written = step_and_text(step, "triton", number == self.style.slip)
            text = text.format(*written.consts, x=self.value, t=second)
            lines.append(f"{self.value} = {text}")
        return lines

    def loop(self, variable: str, span: str, lines: Sequence[str]) -> list[str]:
        """Return a loop over ``range(span)``; the defect keeps only its first turn."""
        if self.style.defect is Defect.MISSING_LOOP:
            return [f"{variable} = 0", *lines]
        return [f"for {variable} in range({span}):", *indent(lines)]

    def blocks(self, count: str, block: int) -> str:
        """Return the number of blocks that cover `count`; the defect rounds it down."""
        if self.style.defect is Defect.NO_BOUNDS_CHECK:
            return f"{count} // {block}"
        return f"triton.cdiv({count}, {block})"

    def empty(self, *sizes: str) -> str:
        """Return the host's expression that allocates a tensor of given sizes."""
        return f"torch.empty({tuple_text(sizes)}, device={self.x}.device, dtype={self.x}.dtype)"

    def finish(
        self,
        body: Sequence[str],
        scalars: Mapping[str, str],
        constants: Mapping[str, int],
        grid: Sequence[str],
        out: str = "",
        out_last: bool = False,
    ) -> StageText:
        """Return the text of the kernel with its host function.

        Args:
            body: Lines of the kernel's body.
            scalars: Integer arguments by name, with the host's expression for each.
            constants: Compile-time arguments by name.
            grid: The host's expressions for the sizes of the grid.
            out: The host's expression that allocates the result; by default it is like the first
                tensor.
            out_last: Allocate the result after the scalars, because its sizes are among them.
        """
        if self.style.defect is Defect.NAME_ERROR:
            body = _misspell(body)
        if self.style.defect is Defect.TYPE_SLIP:
            body = _truncate(body, self.style)
        sizes = [f"{name} = {text}" for name, text in scalars.items()]
        allocation = [f"out = {out or f'torch.empty_like({self.x})'}"]
        return StageText(
            self.style,
            tuple(argument(name) for name in arguments(self.stage, self.style)),
            tuple(body),
            tuple(sizes + allocation if out_last else allocation + sizes),
            tuple(scalars),
            constants,
            tuple(grid),
        )


def _misspell(body: Sequence[str]) -> list[str]:
    """Misspell the name that the last store statement stores, as a defect."""
    lines = list(body)
    last = max(place for place, line in enumerate(lines) if "tl.store(" in line)
    target, _, rest = lines[last].partition(", ")
    lines[last] = f"{target}, result_{rest}"
    return lines


def _truncate(body: Sequence[str], style: Style) -> list[str]:
    """Pass the first loaded value through an integer type, as a defect."""
    loaded = (f"{style.names.value} = tl.load(", "left = tl.load(")
    return [
        f"{line}.to(tl.int32).to(tl.float32)" if line.strip().startswith(loaded) else line
        for line in body
    ]
