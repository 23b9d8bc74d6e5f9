"""What a procedural problem is made of: sizes, tensors, parameters and a list of stages.

A `Spec` is small data. The reference module, the canonical form and the kernels in every language
are all written from it, so they cannot drift apart. Stages are in static single assignment form:
each names the tensor it makes, and later stages (and steps) refer to tensors by name.

Nothing here writes code, draws numbers or imports anything outside the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Preset: TypeAlias = Literal["cpu", "gpu"]
"""Sizes for the Triton interpreter (a few programs a launch), or sizes worth timing."""

Draw: TypeAlias = Literal["normal", "small", "wide", "positive", "index"]
"""How an input is drawn: ``randn``, uniform around zero (half or one and a half wide), uniform
above 0.5, or indices."""

Spread: TypeAlias = Literal["", "full", "row", "col"]
"""How a second operand meets the first: same shape, along the last axis, or one per row."""

Tail: TypeAlias = Literal[
    "",
    "sum",
    "mean",
    "max",
    "min",
    "norm2",
    "softmax",
    "log_softmax",
    "layer_norm",
    "rms_norm",
    "unit_norm",
    "center",
    "cumsum",
    "reverse_cumsum",
]
"""What is done along an axis after the element-wise steps; empty for nothing."""


@dataclass(frozen=True, slots=True)
class ElementStep:
    """One element-wise operation on the running value."""

    op: str
    """A name from `operators.OPERATORS`."""
    consts: tuple[float, ...] = ()
    operand: str = ""
    """Name of the second tensor; empty for a unary operation."""
    spread: Spread = ""


@dataclass(frozen=True, slots=True)
class InputTensor:
    """One input of the model."""

    name: str
    shape: tuple[str, ...]
    """Names of sizes; a name starting with a digit is that number."""
    draw: Draw = "normal"
    bound: str = ""
    """For indices: the size they stay below."""


@dataclass(frozen=True, slots=True)
class Param:
    """One attribute of the model that holds weights."""

    attr: str
    kind: Literal["linear", "layer_norm", "vector"]
    dims: tuple[str, ...]
    """Linear: (in, out). Norm and vector: (features,)."""
    bias: bool = True
    """Linear only: whether there is a bias."""

    @property
    def weight(self) -> str:
        """How the forward method names the weight."""
        return f"self.{self.attr}" if self.kind == "vector" else f"self.{self.attr}.weight"

    @property
    def offset(self) -> str:
        """How the forward method names the bias."""
        return f"self.{self.attr}.bias"


@dataclass(frozen=True, slots=True)
class RowsStage:
    """Element-wise steps, then an operation along one axis, then steps on its result."""

    out: str
    source: str
    shape: tuple[str, ...]
    before: tuple[ElementStep, ...] = ()
    tail: Tail = ""
    axis: int = -1
    weights: tuple[str, ...] = ()
    """Norms: names of the scale and, for `layer_norm`, the shift; empty for none."""
    after: tuple[ElementStep, ...] = ()
    layer: str = ""
    """Attribute whose call is this stage's tail in the reference."""

    @property
    def reduces(self) -> bool:
        """True if the axis disappears."""
        return self.tail in ("sum", "mean", "max", "min", "norm2")

    @property
    def out_shape(self) -> tuple[str, ...]:
        """Shape of the result."""
        if not self.reduces:
            return self.shape
        kept = list(self.shape)
        del kept[self.axis]
        return tuple(kept)


@dataclass(frozen=True, slots=True)
class DotStage:
    """A matrix product ``(m, k) x (k, n)``, then element-wise steps on the result."""

    out: str
    left: str
    right: str
    m: str
    n: str
    """A name of a size, or ``1`` for a matrix-vector product."""
    k: str
    batch: str = ""
    """Leading axis shared by both sides; empty for none."""
    left_t: bool = False
    """The left operand is stored as (k, m)."""
    right_t: bool = False
    """The right operand is stored as (n, k), as the weight of a linear layer is."""
    after: tuple[ElementStep, ...] = ()
    layer: str = ""
    """Attribute whose call makes the product (and adds the bias) in the reference."""

    @property
    def out_shape(self) -> tuple[str, ...]:
        """Shape of the result."""
        shape = (self.m,) if self.n == "1" else (self.m, self.n)
        return (self.batch, *shape) if self.batch else shape


MoveKind: TypeAlias = Literal[
    "transpose", "swap_last", "flip", "roll", "select_rows", "select_cols", "gather_cols"
]


@dataclass(frozen=True, slots=True)
class MoveStage:
    """A rearrangement of the elements, then element-wise steps on the result."""

    out: str
    source: str
    kind: MoveKind
    shape: tuple[str, ...]
    out_shape: tuple[str, ...]
    index: str = ""
    """Name of the index tensor, where there is one."""
    shift: int = 0
    """Positions a roll moves by."""
    after: tuple[ElementStep, ...] = ()


Stage: TypeAlias = RowsStage | DotStage | MoveStage


@dataclass(frozen=True, slots=True)
class Spec:
    """One problem, whole."""

    level: int
    family: str
    name: str
    sizes: tuple[tuple[str, int], ...]
    inputs: tuple[InputTensor, ...]
    stages: tuple[Stage, ...]
    params: tuple[Param, ...] = ()
    spelling: int = 0
    """Which of the equivalent spellings the reference uses."""

    @classmethod
    def of_stage(
        cls,
        level: int,
        family: str,
        name: str,
        sizes: Mapping[str, int],
        inputs: tuple[InputTensor, ...],
        stage: Stage,
        params: tuple[Param, ...] = (),
    ) -> Spec:
        """Return a problem of one stage."""
        return cls(level, family, name, tuple(sizes.items()), inputs, (stage,), params)

    def size(self, name: str) -> int:
        """Return the value of a size, or of a literal such as ``1``."""
        return int(name) if name.isdigit() else dict(self.sizes)[name]

    def elements(self, shape: Sequence[str]) -> int:
        """Return the number of elements of a shape."""
        total = 1
        for name in shape:
            total *= self.size(name)
        return total

    @property
    def out(self) -> str:
        """Name of the result."""
        return self.stages[-1].out

    @property
    def out_shape(self) -> tuple[str, ...]:
        """Shape of the result."""
        return self.stages[-1].out_shape


def operands(stage: Stage) -> tuple[str, ...]:
    """Return the names of the tensors a stage reads, each once, the main one first."""
    if isinstance(stage, RowsStage):
        names = [stage.source, *(s.operand for s in stage.before), *stage.weights]
    elif isinstance(stage, DotStage):
        names = [stage.left, stage.right]
    else:
        names = [stage.source, stage.index]
    names += [step.operand for step in stage.after]
    return tuple(dict.fromkeys(name for name in names if name))
