"""Kernel specs: a kernel, what it computes, and at which shapes.

A spec is a JSON file; ``docs/specs.md`` describes it and ``kernel_spec.schema.json``, beside this
module, is its schema. `kernelgym.suites.spec_suite` makes problems and a kernel of it.

Contract: the classes are frozen data, and the bounds of single values stand in their types. That
the parts of a spec fit together is checked by `kernelgym.suites.spec_checks`, and files are read by
`kernelgym.suites.spec_files`. Nothing of a spec is run.

Not here: other projects' forms (`kernelgym.suites.spec_imports`), and the texts of modules
(`kernelgym.suites.spec_modules`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from kernelgym.languages import LANGUAGES
from kernelgym.rulesets import Ruleset, with_tolerances
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.suites.arithmetic import evaluate, names_in
from kernelgym.suites.spec_sources import is_jit

__all__ = [
    "DTYPES",
    "Arange",
    "ConstAxis",
    "Contract",
    "Dtype",
    "ExprAxis",
    "Full",
    "Init",
    "KernelSpec",
    "Offsets",
    "Ones",
    "Permutation",
    "Randint",
    "Randn",
    "Safetensors",
    "SpecLaunch",
    "SpecReference",
    "SpecScalar",
    "SpecShape",
    "SpecTensor",
    "Tolerances",
    "Uniform",
    "VarAxis",
    "Zeros",
    "names_used",
]

DTYPES: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        **{"float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2)},
        **{"bfloat16": ("BF16", 2), "int64": ("I64", 8), "int32": ("I32", 4)},
        **{"int16": ("I16", 2), "int8": ("I8", 1), "uint8": ("U8", 1), "bool": ("BOOL", 1)},
    }
)
"""By a type's name: its name in safetensors files, and the bytes of one element."""
Dtype = Literal[
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"
]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""Whole number of 64 bits."""
AxisSize = Annotated[int, Field(ge=1, lt=2**63)]
"""Number of elements along an axis."""
Weight = Annotated[float, Field(gt=0.0)]
Tolerance = Annotated[float, Field(ge=0.0)]


@dataclass(frozen=True, slots=True)
class ConstAxis:
    """An axis that has one size."""

    value: AxisSize
    type: Literal["const"] = "const"
    description: str = ""


@dataclass(frozen=True, slots=True)
class VarAxis:
    """An axis whose size each shape gives."""

    type: Literal["var"] = "var"
    description: str = ""


@dataclass(frozen=True, slots=True)
class ExprAxis:
    """An axis whose size follows from axes that stand before it."""

    expression: str
    type: Literal["expr"] = "expr"
    description: str = ""


Axis = Annotated[
    ConstAxis | VarAxis | ExprAxis,
    Field(discriminator="type"),
    BeforeValidator(
        lambda given: {"type": given} if isinstance(given, str) else given,
        json_schema_input_type=ConstAxis | VarAxis | ExprAxis | Literal["var"],
    ),
]


@dataclass(frozen=True, slots=True)
class Randn:
    """Normally distributed."""

    kind: Literal["randn"] = "randn"
    mean: float = 0.0
    std: float = 1.0


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniformly distributed."""

    kind: Literal["uniform"] = "uniform"
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, slots=True)
class Zeros:
    """Zeros."""

    kind: Literal["zeros"] = "zeros"


@dataclass(frozen=True, slots=True)
class Ones:
    """Ones."""

    kind: Literal["ones"] = "ones"


@dataclass(frozen=True, slots=True)
class Full:
    """One value."""

    value: float
    kind: Literal["full"] = "full"


@dataclass(frozen=True, slots=True)
class Arange:
    """``start, start + step, ...``, along the tensor in rows."""

    kind: Literal["arange"] = "arange"
    start: float = 0.0
    step: float = 1.0


@dataclass(frozen=True, slots=True)
class Randint:
    """Whole numbers from `low` to below `high`: arithmetic over axes."""

    high: Whole | str
    kind: Literal["randint"] = "randint"
    low: Whole | str = 0


@dataclass(frozen=True, slots=True)
class Permutation:
    """The numbers below the last axis's size, shuffled in each row."""

    kind: Literal["permutation"] = "permutation"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where ragged rows begin: 0, whole numbers that never fall, `total`."""

    total: Whole | str
    kind: Literal["offsets"] = "offsets"


@dataclass(frozen=True, slots=True)
class Safetensors:
    """A tensor of a safetensors file, named relative to the spec."""

    path: str
    key: str
    kind: Literal["safetensors"] = "safetensors"


Inits = (
    Randn | Uniform | Zeros | Ones | Full | Arange | Randint | Permutation | Offsets | Safetensors
)
Init = Annotated[
    Inits,
    Field(discriminator="kind"),
    BeforeValidator(
        lambda given: {"kind": given} if isinstance(given, str) else given,
        json_schema_input_type=Inits
        | Literal["randn", "uniform", "zeros", "ones", "arange", "permutation"],
    ),
]
"""What a tensor holds at first."""


@dataclass(frozen=True, slots=True)
class SpecTensor:
    """One tensor that the kernel reads or writes."""

    name: str
    shape: tuple[Whole | str, ...]
    """Sizes: whole numbers, axes, or arithmetic over axes."""
    dtype: Dtype = "float32"
    role: Literal["input", "output", "inout"] = "input"
    """An ``inout`` tensor is copied, handed to the kernel, and returned after the outputs."""
    layout: Literal["contiguous", "transposed", "channels_last"] = "contiguous"
    """``transposed``: the last two axes are swapped in memory."""
    init: Init | None = None
    """``randn`` for floating-point types if not given; other types need one."""


@dataclass(frozen=True, slots=True)
class SpecScalar:
    """One number that the kernel is given."""

    name: str
    value: bool | Whole | float


@dataclass(frozen=True, slots=True)
class SpecShape:
    """Sizes to be judged at."""

    axes: Mapping[str, AxisSize]
    """Of each variable axis."""
    weight: Weight = 1.0
    """How much its speedup counts, beside the other shapes' weights."""
    role: Literal["tune", "hidden", "both"] = "tune"
    """``tune``: its time counts. ``hidden``: the kernel has to be correct, and what proposes
    kernels learns nothing of it. ``both``: its time counts, and nothing else is learnt."""
    name: str = ""
    """Made of its axes if empty, such as ``rows=1024-columns=64``."""
    scalars: Mapping[str, bool | Whole | float] = field(default_factory=dict)
    """Values in place of the scalars' own."""
    inits: Mapping[str, Init] = field(default_factory=dict)
    """What tensors hold at first, in place of their own."""

    @property
    def timed(self) -> bool:
        """True if its speedup counts."""
        return self.role != "hidden"


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How much may differ: ``atol + rtol * abs(kernel's value)``."""

    atol: Tolerance
    rtol: Tolerance


@dataclass(frozen=True, slots=True)
class Contract:
    """What a kernel is given, and what it returns."""

    axes: Mapping[str, Axis] = field(default_factory=dict)
    tensors: tuple[SpecTensor, ...] = ()
    scalars: tuple[SpecScalar, ...] = ()
    shapes: tuple[SpecShape, ...] = ()
    """One with all constant axes if none is given."""
    tolerances: Tolerances | None = None
    """In place of the ruleset's."""
    allow_approximate: bool = False
    """Whether a search may make results less accurate than the start's."""


@dataclass(frozen=True, slots=True)
class SpecLaunch:
    """How a kernel is compiled and launched."""

    grid: tuple[Whole | str, ...] = ()
    """Programs along x, y and z: arithmetic over axes and meta-parameters."""
    meta: Mapping[str, tuple[Whole, ...]] = field(default_factory=dict)
    """Meta-parameters with their choices; the first is the one that the kernel starts with."""
    flags: tuple[str, ...] = ()
    """Compiler flags, of C++ and CUDA."""


@dataclass(frozen=True, slots=True)
class SpecReference:
    """What is right: a function `run`, its file, or a problem."""

    run: str = ""
    """Source that defines ``run``; its parameters are named as tensors, scalars or axes."""
    path: str = ""
    """File that holds such a source, relative to the spec."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One kernel with its contract."""

    name: str
    """Letters, digits, ``_``, ``-`` and ``.``."""
    kind: Literal["cpp", "cuda", "triton"]
    """The kernel's language."""
    entry: str
    """The function to call, or ``ModelNew`` where the source is a module that defines it."""
    source: str = ""
    path: str = ""
    """File that holds the source, relative to the spec."""
    returns: Literal["value", "arguments"] = "value"
    """Whether the entry returns its outputs, or is handed tensors to write them to."""
    arguments: tuple[Whole | str, ...] = ()
    """What the entry is called with: names, or arithmetic over axes. If empty: input tensors,
    then outputs that it writes to, then scalars."""
    reference: SpecReference | None = None
    contract: Contract = field(default_factory=Contract)
    launch: SpecLaunch = field(default_factory=SpecLaunch)
    description: str = ""
    weight: Weight = 1.0
    """Share of a budget, beside the weights of other specs in a folder."""
    version: Literal[1] = 1

    @property
    def called_with(self) -> tuple[int | str, ...]:
        """Arguments that the entry is called with, in order."""
        if self.arguments:
            return self.arguments
        tensors = self.contract.tensors
        given = [tensor.name for tensor in tensors if tensor.role != "output"]
        if self.returns == "arguments":
            given += [tensor.name for tensor in tensors if tensor.role == "output"]
        return (*given, *(scalar.name for scalar in self.contract.scalars))

    @property
    def is_jit(self) -> bool:
        """True if the entry is a function that Triton compiles, and launches by a grid."""
        plain = self.is_extension or self.entry == "ModelNew"
        return not plain and is_jit(self.source, self.entry)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that the kernel is given, in order."""
        return tuple(t.name for t in self.contract.tensors if t.role != "output")

    @property
    def is_extension(self) -> bool:
        """True if the source is C++ that torch builds, and no Python."""
        return "load_inline" in LANGUAGES[self.kind].own_kernel.builders

    @property
    def has_device_code(self) -> bool:
        """True if the source is built by a compiler for devices."""
        return bool(LANGUAGES[self.kind].own_kernel.device_marker)

    @property
    def shapes(self) -> tuple[SpecShape, ...]:
        """Shapes, at least one."""
        return self.contract.shapes or (SpecShape({}),)

    def shape_name(self, shape: SpecShape) -> str:
        """Return a shape's name, such as ``rows=1024-columns=64``."""
        return shape.name or "-".join(f"{a}={n}" for a, n in shape.axes.items()) or "default"

    def sizes(self, shape: SpecShape) -> dict[str, int]:
        """Return every axis's size at a shape."""
        values: dict[str, int] = {}
        for name, axis in self.contract.axes.items():
            match axis:
                case ConstAxis():
                    values[name] = axis.value
                case VarAxis():
                    values[name] = shape.axes[name]
                case ExprAxis():
                    values[name] = evaluate(axis.expression, values)
        return values

    def call_bytes(self, shape: SpecShape) -> tuple[int, int]:
        """Return the bytes of one call's inputs and outputs at a shape."""
        values, taken = self.sizes(shape), [0, 0]
        for tensor in self.contract.tensors:
            count = math.prod(evaluate(size, values) for size in tensor.shape)
            number = count * DTYPES[tensor.dtype][1]
            taken[0] += number if tensor.role != "output" else 0
            taken[1] += number if tensor.role != "input" else 0
        return taken[0], taken[1]

    def rules(self, base: str | Ruleset) -> Ruleset:
        """Return a ruleset, with the spec's tolerances if it has any.

        Tolerances of its own make other rules, whose label stands in each verdict.
        """
        rules, own = find_ruleset(base), self.contract.tolerances
        if own is None:
            return rules
        return with_tolerances(rules, own.atol, own.rtol)


def names_used(expressions: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return the names that several expressions use."""
    return tuple(dict.fromkeys(name for each in expressions for name in names_in(each)))
