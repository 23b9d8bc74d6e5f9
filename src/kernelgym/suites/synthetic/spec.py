"""Parts of a procedural problem: sizes, tensors, parameters and a list of stages.

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
"""Preset of sizes: ``cpu`` for the Triton interpreter (a few programs a launch), ``gpu`` for
tensors that are large enough to be timed."""

Draw: TypeAlias = Literal["normal", "small", "wide", "positive", "index"]
"""Distribution of an input: ``normal`` is ``randn``, ``small`` and ``wide`` are uniform around zero
(half or one and a half wide), ``positive`` is uniform above 0.5, ``index`` draws indices."""

Spread: TypeAlias = Literal["", "full", "row", "col"]
"""Broadcasting of a second operand: ``full`` has the shape of the first operand, ``row`` one value
for each place along the last axis, ``col`` one value for each row."""

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
"""Operation along an axis, such as ``softmax`` or ``sum``; empty for none."""


@dataclass(frozen=True, slots=True)
class ElementStep:
    """One element-wise operation of a chain."""

    op: str
    """Name of the operation, one of `operators.OPERATORS`."""
    consts: tuple[float, ...] = ()
    """Constants of the operation."""
    operand: str = ""
    """Name of the second tensor; empty for a unary operation."""
    spread: Spread = ""
    """Broadcasting of the second tensor; empty for a unary operation."""


@dataclass(frozen=True, slots=True)
class InputTensor:
    """One input of the model."""

    name: str
    shape: tuple[str, ...]
    """Names of the sizes of its axes; a name of digits is that number."""
    draw: Draw = "normal"
    """Distribution of the values."""
    bound: str = ""
    """Name of the size that indices stay below; empty for other inputs."""


@dataclass(frozen=True, slots=True)
class Param:
    """Attribute of the model that holds weights."""

    attr: str
    """Name of the attribute."""
    kind: Literal["linear", "layer_norm", "vector"]
    dims: tuple[str, ...]
    """Names of the sizes: (in, out) of a linear layer, (features,) of a norm or a vector."""
    bias: bool = True
    """True if a linear layer has a bias; not used by other kinds."""

    @property
    def weight(self) -> str:
        """Expression for the weight in the forward method."""
        return f"self.{self.attr}" if self.kind == "vector" else f"self.{self.attr}.weight"

    @property
    def offset(self) -> str:
        """Expression for the bias in the forward method."""
        return f"self.{self.attr}.bias"


@dataclass(frozen=True, slots=True)
class RowsStage:
    """Element-wise steps, then an operation along one axis, then steps on its result."""

    out: str
    """Name of the result."""
    source: str
    """Name of the tensor that the stage reads."""
    shape: tuple[str, ...]
    """Shape of that tensor, as names of sizes."""
    before: tuple[ElementStep, ...] = ()
    """Element-wise steps before the operation along the axis."""
    tail: Tail = ""
    """Operation along the axis; empty for none."""
    axis: int = -1
    """Axis of the operation."""
    weights: tuple[str, ...] = ()
    """Names of a norm's scale and, for `layer_norm`, of its shift; empty if it has none."""
    after: tuple[ElementStep, ...] = ()
    """Element-wise steps on the operation's result."""
    layer: str = ""
    """Name of the attribute that the reference calls for the operation; empty if it calls a
    function of torch."""

    @property
    def reduces(self) -> bool:
        """True if the operation removes its axis."""
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
    """Name of the result."""
    left: str
    """Name of the left operand."""
    right: str
    """Name of the right operand."""
    m: str
    """Name of the number of rows of the product."""
    n: str
    """Name of the number of columns of the product; ``1`` for a matrix-vector product."""
    k: str
    """Name of the length of the sums."""
    batch: str = ""
    """Name of the size of a leading axis that both operands have; empty for none."""
    left_t: bool = False
    """True if the left operand is stored as (k, m)."""
    right_t: bool = False
    """True if the right operand is stored as (n, k), like the weight of a linear layer."""
    after: tuple[ElementStep, ...] = ()
    """Element-wise steps on the product."""
    layer: str = ""
    """Name of the linear layer that the reference calls for the product and the bias; empty if it
    multiplies two tensors."""

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
    """Name of the result."""
    source: str
    """Name of the tensor that is rearranged."""
    kind: MoveKind
    """Kind of the rearrangement."""
    shape: tuple[str, ...]
    """Shape of the tensor that is rearranged, as names of sizes."""
    out_shape: tuple[str, ...]
    """Shape of the result, as names of sizes."""
    index: str = ""
    """Name of the index tensor; empty if the rearrangement takes none."""
    shift: int = 0
    """Number of positions by which a roll moves the elements."""
    after: tuple[ElementStep, ...] = ()
    """Element-wise steps on the rearranged tensor."""


Stage: TypeAlias = RowsStage | DotStage | MoveStage


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything from which one problem of the suite is written."""

    level: int
    family: str
    name: str
    sizes: tuple[tuple[str, int], ...]
    """Values of the sizes, by name."""
    inputs: tuple[InputTensor, ...]
    stages: tuple[Stage, ...]
    """Stages of the computation, in order; the last one makes the model's output."""
    params: tuple[Param, ...] = ()
    """Attributes of the model that hold weights."""
    spelling: int = 0
    """Number of the spelling that the reference uses, of several equivalent ones."""

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
        """Return a problem's spec that has one stage."""
        return cls(level, family, name, tuple(sizes.items()), inputs, (stage,), params)

    def size(self, name: str) -> int:
        """Return the value of a size, given by name or as a literal such as ``1``."""
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
    """Return the names of the tensors that a stage of a problem reads, the main one first."""
    if isinstance(stage, RowsStage):
        names = [stage.source, *(s.operand for s in stage.before), *stage.weights]
    elif isinstance(stage, DotStage):
        names = [stage.left, stage.right]
    else:
        names = [stage.source, stage.index]
    names += [step.operand for step in stage.after]
    return tuple(dict.fromkeys(name for name in names if name))
