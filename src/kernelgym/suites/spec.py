"""Kernel specs: a kernel, the function that it computes, and the shapes it is judged at.

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
from kernelgym.suites.spec_arithmetic import evaluate, names_in
from kernelgym.suites.spec_sources import is_global, is_jit

DTYPES: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        **{"float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2)},
        **{"bfloat16": ("BF16", 2), "int64": ("I64", 8), "int32": ("I32", 4)},
        **{"int16": ("I16", 2), "int8": ("I8", 1), "uint8": ("U8", 1), "bool": ("BOOL", 1)},
    }
)
"""Types of tensors by name: name in safetensors files, and bytes of one element."""
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
    """Values of a normal distribution."""

    kind: Literal["randn"] = "randn"
    mean: float = 0.0
    std: float = 1.0


@dataclass(frozen=True, slots=True)
class Uniform:
    """Values of a uniform distribution between `low` and `high`."""

    kind: Literal["uniform"] = "uniform"
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, slots=True)
class Zeros:
    """Values that are all 0."""

    kind: Literal["zeros"] = "zeros"


@dataclass(frozen=True, slots=True)
class Ones:
    """Values that are all 1."""

    kind: Literal["ones"] = "ones"


@dataclass(frozen=True, slots=True)
class Full:
    """Values that are all `value`."""

    value: float
    kind: Literal["full"] = "full"


@dataclass(frozen=True, slots=True)
class Arange:
    """Values ``start, start + step, ...`` in the order of the elements."""

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
    """Numbers from 0 to below the last axis's size, shuffled in each row."""

    kind: Literal["permutation"] = "permutation"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets at which ragged rows begin: 0, whole numbers that never fall, and `total`."""

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
"""Values of a tensor before a call."""


@dataclass(frozen=True, slots=True)
class SpecTensor:
    """One tensor that the kernel reads or writes."""

    name: str
    shape: tuple[Whole | str, ...]
    """Size along each dimension: a whole number, an axis, or arithmetic over axes."""
    dtype: Dtype = "float32"
    role: Literal["input", "output", "inout"] = "input"
    """Use of the tensor; an ``inout`` tensor is copied, handed to the kernel, and returned after
    the outputs."""
    layout: Literal["contiguous", "transposed", "channels_last"] = "contiguous"
    """Order of the elements in memory; ``transposed`` swaps the last two axes."""
    init: Init | None = None
    """Values before a call; ``randn`` for floating-point types if not given."""


@dataclass(frozen=True, slots=True)
class SpecScalar:
    """One number that the kernel is given."""

    name: str
    value: bool | Whole | float


@dataclass(frozen=True, slots=True)
class SpecShape:
    """Sizes of the axes at which a kernel is judged."""

    axes: Mapping[str, AxisSize]
    """Size of each variable axis."""
    weight: Weight = 1.0
    """Weight of the speedup at this shape, relative to the other shapes' weights."""
    role: Literal["tune", "hidden", "both"] = "tune"
    """Use of the shape. ``tune``: its time counts. ``hidden``: the kernel must be correct, and the
    program that proposes kernels learns nothing of it. ``both``: its time counts, and that program
    learns nothing else."""
    name: str = ""
    """Name of the shape; made of its axes if empty, such as ``rows=1024-columns=64``."""
    scalars: Mapping[str, bool | Whole | float] = field(default_factory=dict)
    """Values that replace those of the contract's scalars."""
    inits: Mapping[str, Init] = field(default_factory=dict)
    """Values before a call that replace those of the contract's tensors."""

    @property
    def timed(self) -> bool:
        """Whether a kernel's speedup at this shape counts."""
        return self.role != "hidden"


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Largest difference that is accepted: ``atol + rtol * abs(kernel's value)``."""

    atol: Tolerance
    rtol: Tolerance


@dataclass(frozen=True, slots=True)
class Contract:
    """Inputs and outputs of a kernel, and the shapes that it is judged at."""

    axes: Mapping[str, Axis] = field(default_factory=dict)
    tensors: tuple[SpecTensor, ...] = ()
    scalars: tuple[SpecScalar, ...] = ()
    shapes: tuple[SpecShape, ...] = ()
    """Shapes that the kernel is judged at; one of the constant axes if none is given."""
    tolerances: Tolerances | None = None
    """Tolerances that replace the ruleset's; None for the ruleset's own."""
    allow_approximate: bool = False
    """Whether a search may make results less accurate than the start's."""


@dataclass(frozen=True, slots=True)
class SpecLaunch:
    """Compiler flags and launch parameters of a kernel."""

    grid: tuple[Whole | str, ...] = ()
    """Number of programs, or of blocks, along x, y and z: arithmetic over axes and
    meta-parameters."""
    block: tuple[Whole | str, ...] = ()
    """Number of threads of a block along x, y and z, of a ``__global__`` function."""
    shared_bytes: Whole | str = 0
    """Bytes of dynamic shared memory of a block, of a ``__global__`` function."""
    meta: Mapping[str, tuple[Whole, ...]] = field(default_factory=dict)
    """Meta-parameters with their choices; the first is the one that the kernel starts with."""
    flags: tuple[str, ...] = ()
    """Compiler flags for C++ and CUDA."""


@dataclass(frozen=True, slots=True)
class SpecReference:
    """Reference that defines the right outputs: a function `run`, its file, or a problem."""

    run: str = ""
    """Source that defines the function ``run``, whose parameters are named as tensors, scalars or
    axes."""
    path: str = ""
    """File with a source that defines ``run``, relative to the spec."""
    problem: str = ""
    """Id of a problem of a suite, or a problem file in the spec's folder."""


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One kernel with its contract."""

    name: str
    """Name of the spec: letters, digits, ``_``, ``-`` and ``.``."""
    kind: Literal["cpp", "cuda", "triton"]
    """Language of the kernel."""
    entry: str
    """Name of the function to call, or ``ModelNew`` where the source is a module that defines
    it."""
    source: str = ""
    path: str = ""
    """File that holds the source, relative to the spec."""
    returns: Literal["value", "arguments"] = "value"
    """``value`` if the entry returns its outputs, ``arguments`` if it writes them to tensors that
    it is given."""
    arguments: tuple[Whole | str, ...] = ()
    """Arguments of the entry in order: names, or arithmetic over axes. If empty: input tensors,
    then outputs that it writes to, then scalars."""
    reference: SpecReference | Literal["start"] | None = None
    """Reference that defines the right outputs; ``start`` if the spec's own kernel does."""
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
    def given_reference(self) -> SpecReference | None:
        """Reference as code or a problem; None if the spec's own kernel says what is right."""
        return None if self.reference == "start" else self.reference

    @property
    def is_jit(self) -> bool:
        """Whether the entry is a function that Triton compiles and that is launched by a grid."""
        plain = self.is_extension or self.entry == "ModelNew"
        return not plain and is_jit(self.source, self.entry)

    @property
    def is_global(self) -> bool:
        """Whether the entry is a ``__global__`` function of CUDA that is launched by a grid."""
        plain = not self.has_device_code or self.entry == "ModelNew"
        return not plain and is_global(self.source, self.entry)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that the kernel is given, in order."""
        return tuple(t.name for t in self.contract.tensors if t.role != "output")

    @property
    def is_extension(self) -> bool:
        """Whether the source is C++ or CUDA that torch builds, and not Python."""
        return "load_inline" in LANGUAGES[self.kind].own_kernel.builders

    @property
    def has_device_code(self) -> bool:
        """Whether the source is compiled for a GPU."""
        return bool(LANGUAGES[self.kind].own_kernel.device_marker)

    @property
    def shapes(self) -> tuple[SpecShape, ...]:
        """Shapes that the kernel is judged at, at least one."""
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
    """Return the names that several expressions of a kernel spec use."""
    return tuple(dict.fromkeys(name for each in expressions for name in names_in(each)))
